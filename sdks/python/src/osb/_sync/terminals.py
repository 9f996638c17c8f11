# Made from osb/_async/terminals.py by make-sync. Do not edit.
"""Terminals: a shell with a screen, over a WebSocket that can be left and come back to; and plain
byte streams to a port."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Iterator

from .. import _http, _websocket, wire
from ..errors import OsbError, TerminalError
from ..terminal_events import (
    Closed, Connected, ErrorOutput, Exited, Refused, Replayed, TerminalEvent, TerminalOutput,
)
from . import net
from .transport import Target

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Terminals:
    """The terminals of a sandbox, by `sandbox.terminals`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def create(
        self, cwd: str | None = None, command: str | None = None, *, size: tuple[int, int] | None = None
    ) -> Terminal:
        """Makes a terminal: an interactive shell, or this shell text, in this directory, with a `size` of
        columns and rows; a shell that is told its size only while it starts may miss it."""
        target = self._sandbox._exec()
        columns, rows = size or (None, None)
        given = (("cwd", cwd), ("command", command), ("cols", columns), ("rows", rows))
        order = {name: value for name, value in given if value is not None}
        return self.get((target.json("POST", "/pty", json=order))["session_id"])

    def get(self, id: str) -> Terminal:
        """A terminal by its id, without any request."""
        return Terminal(self._sandbox, id)


class Terminal:
    """A terminal. Leaving its block ends it; leaving a connection's block does not."""

    def __init__(self, sandbox: Sandbox, id: str) -> None:
        self.id = id
        self._sandbox = sandbox

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.delete()

    def status(self) -> wire.PtyStatus:
        """How it stands."""
        target = self._sandbox._exec()
        return wire.PtyStatus.from_wire(target.json("GET", f"/pty/{_http.segment(self.id)}"))

    def delete(self) -> None:
        """Ends it."""
        target = self._sandbox._exec()
        target.whole("DELETE", f"/pty/{_http.segment(self.id)}")

    def connect(
        self, *, pipes: bool = False, since: int | None = None, take_over: bool = False,
        size: tuple[int, int] | None = None,
    ) -> TerminalConnection:
        """Connects to it; the first connection starts its shell. `pipes` are instead of a terminal, with
        error output apart; `since` replays output from this byte on; `take_over` takes it from the
        client that holds it; `size` are the columns and rows that it gets before its shell starts or anything
        is replayed. Pipes have no size."""
        target = self._sandbox._exec()
        columns, rows = size or (None, None)
        query = _http.query(("pty", "0" if pipes else None), ("since", since), ("takeover", "1" if take_over else None),
                            ("cols", columns), ("rows", rows))
        key = _websocket.new_key()
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": key}
        answer = target.send("GET", f"/pty/{_http.segment(self.id)}/ws", query=query, headers=headers)
        if answer.status != 101 or answer.headers.get("sec-websocket-accept") != _websocket.accept_of(key):
            answer.close()
            raise TerminalError("what answered is not a WebSocket")
        connection, rest = answer.take_over()
        return TerminalConnection(connection, rest)


class TerminalConnection:
    """A connection to a terminal: iterate over it for what comes. One task or thread may read while
    another writes. Leaving its block leaves the terminal, which goes on without a client."""

    def __init__(self, connection: net.Connection, rest: bytes) -> None:
        self._connection = connection
        self._decoder = _websocket.Decoder()
        self._ready = self._decoder.feed(rest)
        self._is_closed = False

    def __enter__(self) -> TerminalConnection:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[TerminalEvent]:
        while True:
            event = self.next()
            if event is None:
                return
            yield event

    def next(self) -> TerminalEvent | None:
        """What comes next; nothing after `Closed`."""
        while True:
            while self._ready:
                event = self._event(*self._ready.pop(0))
                if event is not None:
                    return event
            if self._is_closed:
                return None
            self._ready = self._decoder.feed(self._receive())

    def _receive(self) -> bytes:
        try:
            data = self._connection.read()
        except OSError as error:
            if self._is_closed:
                return b""
            raise TerminalError(error.strerror or str(error)) from error
        if not data and not self._is_closed:
            self._is_closed = True
            raise TerminalError("it ended without a goodbye")
        return data

    def _event(self, opcode: int, payload: bytes) -> TerminalEvent | None:
        if opcode == _websocket.BINARY:
            return _binary(payload)
        if opcode == _websocket.TEXT:
            return _text(payload)
        if opcode == _websocket.PING:
            self._send(_websocket.PONG, payload)
        elif opcode == _websocket.CLOSE:
            code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else None
            if not self._is_closed:
                try:
                    self._send(_websocket.CLOSE, payload[:2])
                except OsbError:
                    pass
            self._is_closed = True
            self._connection.close()
            return Closed(code, payload[2:].decode("utf-8", "replace"))
        return None

    def write(self, data: str | bytes) -> None:
        """Sends keystrokes."""
        self._send(_websocket.BINARY, b"\x00" + (data.encode() if isinstance(data, str) else data))

    def resize(self, columns: int, rows: int) -> None:
        """Says that the window has a new size."""
        self._message({"type": "resize", "cols": columns, "rows": rows})

    def signal(self, signal: wire.PtySignal) -> None:
        """Sends a signal to what runs in front: `SIGINT` and so on."""
        self._message({"type": "signal", "signal": signal})

    def ping(self) -> None:
        """Says that this client lives; only one that does not read needs this."""
        self._message({"type": "ping"})

    def close(self) -> None:
        """Leaves the terminal."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._send(_websocket.CLOSE, struct.pack("!H", 1000))
        except OsbError:
            pass
        self._connection.close()

    def _message(self, message: dict[str, Any]) -> None:
        self._send(_websocket.TEXT, json.dumps(message).encode())

    def _send(self, opcode: int, payload: bytes) -> None:
        frame = _websocket.encode(opcode, payload)
        try:
            self._connection.write(frame)
        except (OSError, RuntimeError) as error:
            raise TerminalError(str(error)) from error


def _binary(frame: bytes) -> TerminalEvent:
    kind, rest = frame[:1], frame[1:]
    if kind == b"\x01":
        return TerminalOutput(rest)
    if kind == b"\x02":
        return ErrorOutput(rest)
    if kind == b"\x03" and len(rest) >= 8:
        return Replayed(struct.unpack("!Q", rest[:8])[0], rest[8:])
    raise TerminalError(f"a frame of a kind came that is not known: {frame[:1]!r}")


def _text(payload: bytes) -> TerminalEvent | None:
    try:
        message = json.loads(payload)
        kind = message["type"]
        if kind == "connected":
            return Connected()
        if kind == "error":
            return Refused(message["code"], message["error"])
        if kind == "exit":
            return Exited(message["exit_code"], message.get("signal"))
    except (ValueError, KeyError, TypeError) as error:
        raise TerminalError(f"a message is not readable: {error}") from error
    return None


class Tunnel:
    """A plain byte stream to a port of a sandbox, for whatever does not speak HTTP."""

    def __init__(self, connection: net.Connection, rest: bytes) -> None:
        self._connection = connection
        self._rest = rest

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def read(self) -> bytes:
        """What has come; nothing at the end."""
        data, self._rest = self._rest, b""
        return data or self._connection.read()

    def write(self, data: bytes) -> None:
        self._connection.write(data)

    def close(self) -> None:
        self._connection.close()


def open_tunnel(target: Target) -> Tunnel:
    answer = target.send("GET", "/", headers={"Connection": "upgrade", "Upgrade": "tcp"})
    if answer.status != 101:
        answer.close()
        raise TerminalError("the port cannot be reached as a byte stream")
    return Tunnel(*answer.take_over())
