"""The desktop of a sandbox as the computer of a `ComputerTool`."""

from __future__ import annotations

import base64
from typing import Any

from agents.computer import AsyncComputer, Button
from osb import AsyncDesktop

# Models scroll by pixels, a wheel by notches: what most desktops move in one.
NOTCH_PIXELS = 100


class OsbComputer(AsyncComputer):
    """A computer. The desktop is one of a sandbox of the images `browser` or `desktop`, ready, with this size."""

    def __init__(self, desktop: AsyncDesktop, dimensions: tuple[int, int] = (1280, 800)) -> None:
        self._desktop = desktop
        self._dimensions = dimensions

    @property
    def environment(self) -> Any:
        return "ubuntu"

    @property
    def dimensions(self) -> tuple[int, int]:
        return self._dimensions

    async def screenshot(self) -> str:
        return base64.b64encode(await self._desktop.screenshot()).decode()

    async def click(self, x: int, y: int, button: Button = "left", *, keys: list[str] | None = None) -> None:
        await self._act(type="click", x=x, y=y, button=button, hold=keys or [])

    async def double_click(self, x: int, y: int, *, keys: list[str] | None = None) -> None:
        await self._act(type="click", x=x, y=y, count=2, hold=keys or [])

    async def scroll(
        self, x: int, y: int, scroll_x: int, scroll_y: int, *, keys: list[str] | None = None
    ) -> None:
        await self._act(type="scroll", x=x, y=y, dx=_notches(scroll_x), dy=_notches(scroll_y), hold=keys or [])

    async def type(self, text: str) -> None:
        await self._act(type="type", text=text)

    async def wait(self) -> None:
        await self._desktop.wait_until_still()

    async def move(self, x: int, y: int, *, keys: list[str] | None = None) -> None:
        await self._act(type="move", x=x, y=y)

    async def keypress(self, keys: list[str]) -> None:
        await self._act(type="key", keys=keys)

    async def drag(self, path: list[tuple[int, int]], *, keys: list[str] | None = None) -> None:
        await self._act(type="drag", path=[{"x": x, "y": y} for x, y in path], hold=keys or [])

    async def _act(self, **action: Any) -> None:
        # Pictures are of the screen as it is, so coordinates are the screen's.
        await self._desktop.act(action, picture=0)


def _notches(pixels: int) -> int:
    """At least one, in the direction that was asked for."""
    return 0 if pixels == 0 else max(1, abs(pixels) // NOTCH_PIXELS) * (1 if pixels > 0 else -1)
