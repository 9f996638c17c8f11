"""What comes from a terminal."""

from __future__ import annotations

from typing import Union

from .results import _Event

__all__ = [
    "Closed", "Connected", "ErrorOutput", "Exited", "Refused", "Replayed", "TerminalEvent", "TerminalOutput",
]


class Connected(_Event):
    """This client now holds the terminal."""

    __slots__ = ()


class TerminalOutput(_Event):
    """Output."""

    __slots__ = __match_args__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class ErrorOutput(_Event):
    """Error output; only with pipes."""

    __slots__ = __match_args__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Replayed(_Event):
    """Output from before, or after some that was lost; `offset` is where its first byte stands."""

    __slots__ = __match_args__ = ("offset", "data")

    def __init__(self, offset: int, data: bytes) -> None:
        self.offset = offset
        self.data = data


class Refused(_Event):
    """Something that was sent could not be honoured."""

    __slots__ = __match_args__ = ("code", "message")

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message


class Exited(_Event):
    """The process has ended; `code` is -1 for a signal."""

    __slots__ = __match_args__ = ("code", "signal")

    def __init__(self, code: int, signal: int | None) -> None:
        self.code = code
        self.signal = signal


class Closed(_Event):
    """The connection is closed; code 4001 is another client that took over."""

    __slots__ = __match_args__ = ("code", "reason")

    def __init__(self, code: int | None, reason: str) -> None:
        self.code = code
        self.reason = reason


TerminalEvent = Union[Connected, TerminalOutput, ErrorOutput, Replayed, Refused, Exited, Closed]
