"""The screen, mouse and keyboard of a sandbox of a graphical image, by the helper inside it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

from .. import _http
from .._durations import Seconds, seconds
from ..errors import Failed, NotReady, OsbError
from . import net
from .sandbox import ASK_AGAIN
from .transport import Target

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

# Where the helper of the images `browser` and `desktop` listens.
HELPER_PORT = 6080
# How long the X server and what is drawn on it may take to be there, in seconds.
READY_TIMEOUT = 60.0
# For so long the screen may not change to be still, in milliseconds.
QUIET_MS = 300


class AsyncDesktop:
    """The desktop of a sandbox: `AsyncDesktop(sandbox)`, then `ready`.

    Actions are mappings such as `{"type": "click", "x": 10, "y": 20}`: `move`, `click`, `press`, `release`, `drag`,
    `scroll`, `type`, `key` and `wait`. Their coordinates are those of the last picture, whatever its size was;
    with `picture=0` those of the screen.
    """

    def __init__(self, sandbox: AsyncSandbox, port: int = HELPER_PORT) -> None:
        self.sandbox = sandbox
        self.port = port
        self._target: Target | None = None

    async def ready(self, timeout: Seconds = READY_TIMEOUT) -> None:
        """Waits until the screen is there and does not change for a moment."""
        deadline = net.now() + seconds(timeout)
        while True:
            try:
                await self.wait_until_still()
                return
            except OsbError as error:
                last = error
            # A port that begins to listen tells nobody.
            left = deadline - net.now()
            if left <= 0:
                raise NotReady(self.sandbox.id, seconds(timeout), last)
            await net.sleep(min(ASK_AGAIN, left))

    async def info(self) -> Mapping[str, Any]:
        """Size of the screen, where the pointer is, the focused window, the browser, paths of the live view."""
        found: Mapping[str, Any] = await self._json("GET", "/desktop")
        return found

    async def screenshot(
        self, *, region: tuple[int, int, int, int] | None = None, max_edge: int | None = None, format: str = "png",
        quality: int | None = None, cursor: bool = False,
    ) -> bytes:
        """A picture of the screen, or of a region (x, y, width, height), as PNG or JPEG. `max_edge` makes it
        smaller."""
        query = _http.query(*_options(region, max_edge, format, quality, cursor).items())
        target = await self._helper()
        try:
            return await target.whole("GET", "/desktop/screenshot", query=query)
        except OsbError as error:
            raise self._told(error) from error

    async def act(self, *actions: Mapping[str, Any], picture: int | None = None) -> None:
        """Does actions one after the other, in one request."""
        await self._json("POST", "/desktop/actions", json=_order(actions, picture))

    async def act_and_see(
        self, *actions: Mapping[str, Any], picture: int | None = None, max_edge: int | None = None,
        format: str = "png", quality: int | None = None, cursor: bool = False, quiet_ms: int = QUIET_MS,
    ) -> bytes:
        """Does actions, waits until the screen is still, and answers with a picture of it, in one request."""
        then = {**_options(None, max_edge, format, quality, cursor), "still": {"quiet_ms": quiet_ms}}
        done = await self._json("POST", "/desktop/actions", json={**_order(actions, picture), "then": then})
        return base64.b64decode(done["picture"]["data"])

    async def wait_until_still(self, quiet_ms: int = QUIET_MS, timeout_ms: int = 10_000) -> bool:
        """Waits until nothing changes for so long; False where it still changed at the end of the time."""
        query = _http.query(("quiet_ms", quiet_ms), ("timeout_ms", timeout_ms))
        return bool((await self._json("GET", "/desktop/still", query=query))["is_still"])

    async def clipboard(self) -> str:
        """The text of the clipboard."""
        return str((await self._json("GET", "/desktop/clipboard"))["text"])

    async def set_clipboard(self, text: str) -> None:
        """Puts text into the clipboard."""
        await self._json("PUT", "/desktop/clipboard", json={"text": text})

    async def windows(self) -> List[Mapping[str, Any]]:
        """The windows, each with `id`, `title`, `class` and where it is."""
        return list((await self._json("GET", "/desktop/windows"))["windows"])

    async def resize(self, width: int, height: int) -> None:
        """Gives the screen another size."""
        await self._json("PUT", "/desktop/size", json={"width": width, "height": height})

    async def live_view(self, view_only: bool = False) -> str:
        """A link by which a person sees the desktop in a browser and, unless `view_only`, uses it. It has the
        sandbox's token in it: give it to nobody who may not use the sandbox."""
        paths = (await self.info())["live_view"]
        base, headers = await self.sandbox.url(self.port)
        tokens = [value for name, value in headers.items() if name.upper() != "OPEN-SANDBOX-API-KEY"]
        path = str(paths["view_only" if view_only else "page"])
        token = _http.query(("opensandbox_token", tokens[0])) if tokens else ""
        return f"{base}/{path}{'&' if '?' in path else '?'}{token}" if token else f"{base}/{path}"

    async def _helper(self) -> Target:
        if self._target is None:
            base, headers = await self.sandbox.url(self.port)
            self._target = Target(self.sandbox.client._transport, base, headers)
        return self._target

    async def _json(self, method: str, path: str, **given: Any) -> Any:
        target = await self._helper()
        try:
            return await target.json(method, path, **given)
        except OsbError as error:
            raise self._told(error) from error

    def _told(self, error: OsbError) -> OsbError:
        """Where nothing listens, it is because the image has no desktop, or not yet."""
        if error.status in (502, 503, 504):
            told = Failed(f"sandbox {self.sandbox.id}", "without a desktop",
                          f"nothing answers on port {self.port}; the images browser and desktop have one")
            told.status, told.code, told.request_id = error.status, error.code, error.request_id
            return told
        return error


def _options(
    region: tuple[int, int, int, int] | None, max_edge: int | None, format: str, quality: int | None, cursor: bool
) -> dict[str, Any]:
    wanted = {"region": None if region is None else ",".join(map(str, region)), "max_edge": max_edge,
              "format": format, "quality": quality, "cursor": cursor or None}
    return {name: value for name, value in wanted.items() if value is not None}


def _order(actions: Sequence[Mapping[str, Any]], picture: int | None) -> dict[str, Any]:
    order: dict[str, Any] = {"actions": [dict(action) for action in actions]}
    return order if picture is None else {**order, "picture": picture}
