# Made from osb/_async/code.py by make-sync. Do not edit.
"""Code that remembers: contexts of a language, and running code in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _http, wire
from .._durations import Seconds, milliseconds
from ..results import Output
from .execution import CODE, Execution, OnText

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Code:
    """The code of a sandbox, by `sandbox.code`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def run(
        self, code: str, *, language: str | None = None, context: str | None = None, timeout: Seconds | None = None,
        on_stdout: OnText | None = None, on_stderr: OnText | None = None,
    ) -> Output:
        """Runs code in the default context of its language, or in one that is chosen by its id. The value
        of its last expression is `text`, everything it showed `results`. `timeout` interrupts it."""
        execution = self.start(code, language=language, context=context, timeout=timeout)
        with execution:
            return execution.output(on_stdout, on_stderr)

    def start(
        self, code: str, *, language: str | None = None, context: str | None = None, timeout: Seconds | None = None
    ) -> Execution:
        """Starts code and answers its events as they come."""
        order: dict[str, Any] = {"code": code}
        place = {"language": language, "id": context}
        if language is not None or context is not None:
            order["context"] = {name: value for name, value in place.items() if value is not None}
        if timeout is not None:
            order["timeout"] = milliseconds(timeout)
        target = self._sandbox._exec()
        return Execution(target.send("POST", "/code", json=order), CODE, target)

    def create_context(self, language: str, cwd: str | None = None) -> wire.CodeContext:
        """Makes a context of a language, in this directory if given."""
        target = self._sandbox._exec()
        order = {"language": language, **({"cwd": cwd} if cwd else {})}
        return wire.CodeContext.from_wire(target.json("POST", "/code/context", json=order))

    def get_context(self, id: str) -> wire.CodeContext:
        target = self._sandbox._exec()
        return wire.CodeContext.from_wire(target.json("GET", f"/code/contexts/{_http.segment(id)}"))

    def list_contexts(self, language: str | None = None) -> list[wire.CodeContext]:
        """The contexts, of one language if given."""
        target = self._sandbox._exec()
        found = target.json("GET", "/code/contexts", query=_http.query(("language", language)))
        return [wire.CodeContext.from_wire(each) for each in found]

    def delete_context(self, id: str) -> None:
        """Ends a context."""
        target = self._sandbox._exec()
        target.whole("DELETE", f"/code/contexts/{_http.segment(id)}")

    def delete_contexts(self, language: str) -> None:
        """Ends the contexts of a language."""
        target = self._sandbox._exec()
        target.whole("DELETE", "/code/contexts", query=_http.query(("language", language)))

    def interrupt(self, id: str) -> None:
        """Interrupts what runs in a context, by the id that its `Started` event has."""
        target = self._sandbox._exec()
        target.whole("DELETE", "/code", query=_http.query(("id", id)))
