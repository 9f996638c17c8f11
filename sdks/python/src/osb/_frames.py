"""Reads streams of events as they arrive, in any pieces: bare JSON lines and server-sent events."""

from __future__ import annotations

import json
from typing import Any

from .errors import Unreadable

# Longer than any event our daemon sends; the published one sends whole lines, however long.
EVENT_BYTES_MAX = 16 * 1024 * 1024


class Frames:
    """The values of one stream. Holds at most one event that has not come whole."""

    __slots__ = ("_rest", "_data", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[Any]:
        """The values that are whole now."""
        if self._rest:
            data = self._rest + data
        end = data.rfind(b"\n")
        if end < 0:
            if len(data) > EVENT_BYTES_MAX:
                raise Unreadable(self.what, f"an event is longer than {EVENT_BYTES_MAX} bytes")
            self._rest = data
            return []
        self._rest = data[end + 1 :]
        whole = data[:end]
        if len(self._rest) > EVENT_BYTES_MAX:
            raise Unreadable(self.what, f"an event is longer than {EVENT_BYTES_MAX} bytes")
        if not self._data and whole[:1] == b"{" and b"\ndata:" not in whole and b"\r" not in whole:
            # All bare events: read together, because reading them one by one takes three times as long.
            try:
                return json.loads(b"[" + b",".join([line for line in whole.split(b"\n") if line]) + b"]")  # type: ignore[no-any-return]
            except ValueError:
                pass
        return self._lines(whole.split(b"\n"))

    def finish(self) -> list[Any]:
        """What came last without its line end, if it is whole all the same."""
        try:
            return self._lines([self._rest, b""])
        except Unreadable:
            # Half an event at the end of a broken connection comes again when the stream is resumed.
            return []

    def _lines(self, lines: list[bytes]) -> list[Any]:
        values = []
        for line in lines:
            line = line.rstrip(b"\r")
            if not line:
                if self._data:
                    values.append(self._read(b"\n".join(self._data)))
                    self._data = []
                continue
            start = line.lstrip()[:1]
            if start in (b"{", b"["):
                values.append(self._read(line))
                continue
            name, colon, value = line.partition(b":")
            if not colon or not all(byte in b"-_" or chr(byte).isalnum() for byte in name):
                raise Unreadable(self.what, f"{line[:80]!r} is neither JSON nor a field of server-sent events")
            if name == b"data":
                self._data.append(value[1:] if value[:1] == b" " else value)
        return values

    def _read(self, text: bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unreadable(self.what, str(error)) from None
