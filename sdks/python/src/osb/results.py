"""What runs in a sandbox gives: events as they come, the output when it is over, rich results."""

from __future__ import annotations

import base64
from typing import Any, Union

__all__ = [
    "Completed", "Count", "Ending", "ErrorEvent", "Event", "ExecutionFailure", "Figure", "Logs", "Output", "Result",
    "Started", "Stderr", "Stdout", "Table",
]


class _Event:
    """What the events share: equal when they say the same."""

    __slots__: tuple[str, ...] = ()

    def _all(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, _Event) and self._all() == other._all()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(value) for value in self._all())})"


class Started(_Event):
    """It has begun; `id` is what to ask by: a command's id, the session's, the context's."""

    __slots__ = __match_args__ = ("id",)

    def __init__(self, id: str) -> None:
        self.id = id


class Stdout(_Event):
    """Output, with the line ends it was written with."""

    __slots__ = __match_args__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Stderr(_Event):
    """Error output, with the line ends it was written with."""

    __slots__ = __match_args__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Count(_Event):
    """How many cells the context has run."""

    __slots__ = __match_args__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class ExecutionFailure(_Event):
    """How an execution failed: an exit code, a signal, an exception of code."""

    __slots__ = __match_args__ = ("name", "value", "traceback")

    def __init__(self, name: str, value: str, traceback: list[str]) -> None:
        self.name = name
        self.value = value
        self.traceback = traceback


class ErrorEvent(_Event):
    """It failed."""

    __slots__ = __match_args__ = ("error",)

    def __init__(self, error: ExecutionFailure) -> None:
        self.error = error


class Completed(_Event):
    """It is over; `took` is in seconds."""

    __slots__ = __match_args__ = ("took",)

    def __init__(self, took: float | None) -> None:
        self.took = took


class Result(_Event):
    """A value or a display of code, in every form it has: `by_type` maps media types to text, images
    to base64. `Figure` and `Table` are the richer kinds."""

    __slots__ = ("by_type", "count")
    __match_args__ = ("by_type", "count")
    kind = "other"

    def __init__(self, by_type: dict[str, str], count: int | None = None) -> None:
        self.by_type = by_type
        self.count = count

    def _all(self) -> tuple[Any, ...]:
        return (self.by_type, self.count)

    @property
    def text(self) -> str | None:
        """The value as plain text."""
        return self.by_type.get("text/plain", self.by_type.get("text"))

    @property
    def html(self) -> str | None:
        return self.by_type.get("text/html")


class TextResult(Result):
    """A value that is only text."""

    __slots__ = ()
    kind = "text"


class Figure(Result):
    """An image: a plot, a picture."""

    __slots__ = ()
    kind = "figure"

    @property
    def media_type(self) -> str:
        """The richest image there is: `image/png`, `image/svg+xml` and so on."""
        return next(name for name in _IMAGES if name in self.by_type)

    @property
    def data(self) -> bytes:
        """The image's bytes."""
        value = self.by_type[self.media_type]
        return value.encode() if self.media_type == "image/svg+xml" else base64.b64decode(value)


class Table(Result):
    """Rows and columns, as HTML and as text."""

    __slots__ = ()
    kind = "table"


_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")


def result_of(by_type: dict[str, str], count: int | None) -> Result:
    """The result as the richest kind it has a form of."""
    if any(name in by_type for name in _IMAGES):
        return Figure(by_type, count)
    if "<table" in by_type.get("text/html", "") or "text/csv" in by_type:
        return Table(by_type, count)
    if not set(by_type) - {"text", "text/plain"}:
        return TextResult(by_type, count)
    return Result(by_type, count)


Event = Union[Started, Stdout, Stderr, Result, Count, ErrorEvent, Completed]


class Ending(_Event):
    """How an execution ended: `kind` is `code`, `signal` or `failed` (an exception, or no start)."""

    __slots__ = __match_args__ = ("kind", "code", "signal")

    def __init__(self, kind: str, code: int | None = None, signal: str | None = None) -> None:
        self.kind = kind
        self.code = code
        self.signal = signal


class Output:
    """Everything an execution gave."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.results: list[Result] = []
        self.error: ExecutionFailure | None = None
        self.count: int | None = None
        self.took: float | None = None
        self._stdout: list[str] = []
        self._stderr: list[str] = []
        self._is_complete = False

    @property
    def stdout(self) -> str:
        if len(self._stdout) > 1:
            self._stdout = ["".join(self._stdout)]
        return self._stdout[0] if self._stdout else ""

    @property
    def stderr(self) -> str:
        if len(self._stderr) > 1:
            self._stderr = ["".join(self._stderr)]
        return self._stderr[0] if self._stderr else ""

    @property
    def exit_code(self) -> int | None:
        """0 when it completed, -1 for a signal, None when there is none because it did not start or
        was code that failed."""
        if self.error is None:
            return 0 if self._is_complete else None
        try:
            return int(self.error.value)
        except ValueError:
            return None

    @property
    def ending(self) -> Ending:
        """How it ended."""
        first = self.error.traceback[0] if self.error and self.error.traceback else ""
        if first.startswith("signal: "):
            return Ending("signal", signal=first[len("signal: "):])
        code = self.exit_code
        return Ending("failed") if code is None else Ending("code", code=code)

    @property
    def is_success(self) -> bool:
        return self.error is None and self._is_complete

    @property
    def text(self) -> str | None:
        """The text of the last value of code."""
        return next((each.text for each in reversed(self.results) if each.text is not None), None)

    def push(self, event: Event) -> None:
        """Takes an event in."""
        kind = type(event)
        if kind is Stdout:
            self._stdout.append(event.text)  # type: ignore[union-attr, arg-type]
        elif kind is Stderr:
            self._stderr.append(event.text)  # type: ignore[union-attr, arg-type]
        elif isinstance(event, Started):
            self.id = event.id
        elif isinstance(event, Result):
            self.results.append(event)
        elif isinstance(event, Count):
            self.count = event.count
        elif isinstance(event, ErrorEvent):
            self.error = event.error
        elif isinstance(event, Completed):
            self.took = event.took
            self._is_complete = True

    def __repr__(self) -> str:
        return f"Output(exit_code={self.exit_code}, stdout={self.stdout[:200]!r}, stderr={self.stderr[:200]!r})"


class Logs:
    """Output of a command so far, and where to read on."""

    def __init__(self, text: str, cursor: int | None) -> None:
        self.text = text
        self.cursor = cursor
