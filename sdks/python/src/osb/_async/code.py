"""Code that remembers: contexts of a language, and running code in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _http, wire
from .._durations import Seconds, milliseconds
from ..results import Output
from .execution import CODE, AsyncExecution, OnText

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncCode:
    """The code of a sandbox, by `sandbox.code`."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def run(
        self, code: str, *, language: str | None = None, context: str | None = None, timeout: Seconds | None = None,
        on_stdout: OnText | None = None, on_stderr: OnText | None = None,
    ) -> Output:
        """Runs code in the default context of its language, or in one that is chosen by its id. The value
        of its last expression is `text`, everything it showed `results`. `timeout` interrupts it."""
        execution = await self.start(code, language=language, context=context, timeout=timeout)
        async with execution:
            return await execution.output(on_stdout, on_stderr)

    async def start(
        self, code: str, *, language: str | None = None, context: str | None = None, timeout: Seconds | None = None
    ) -> AsyncExecution:
        """Starts code and answers its events as they come."""
        order: dict[str, Any] = {"code": code}
        place = {"language": language, "id": context}
        if language is not None or context is not None:
            order["context"] = {name: value for name, value in place.items() if value is not None}
        if timeout is not None:
            order["timeout"] = milliseconds(timeout)
        target = await self._sandbox._exec()
        return AsyncExecution(await target.send("POST", "/code", json=order), CODE, target)

    async def create_context(self, language: str, cwd: str | None = None) -> wire.CodeContext:
        """Makes a context of a language, in this directory if given."""
        target = await self._sandbox._exec()
        order = {"language": language, **({"cwd": cwd} if cwd else {})}
        return wire.CodeContext.from_wire(await target.json("POST", "/code/context", json=order))

    async def get_context(self, id: str) -> wire.CodeContext:
        target = await self._sandbox._exec()
        return wire.CodeContext.from_wire(await target.json("GET", f"/code/contexts/{_http.segment(id)}"))

    async def list_contexts(self, language: str | None = None) -> list[wire.CodeContext]:
        """The contexts, of one language if given."""
        target = await self._sandbox._exec()
        found = await target.json("GET", "/code/contexts", query=_http.query(("language", language)))
        return [wire.CodeContext.from_wire(each) for each in found]

    async def delete_context(self, id: str) -> None:
        """Ends a context."""
        target = await self._sandbox._exec()
        await target.whole("DELETE", f"/code/contexts/{_http.segment(id)}")

    async def delete_contexts(self, language: str) -> None:
        """Ends the contexts of a language."""
        target = await self._sandbox._exec()
        await target.whole("DELETE", "/code/contexts", query=_http.query(("language", language)))

    async def interrupt(self, id: str) -> None:
        """Interrupts what runs in a context, by the id that its `Started` event has."""
        target = await self._sandbox._exec()
        await target.whole("DELETE", "/code", query=_http.query(("id", id)))
