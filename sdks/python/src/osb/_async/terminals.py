"""Terminals: a shell with a screen, over a WebSocket that can be left and come back to; and plain
byte streams to a port."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, AsyncIterator

from .. import _http, _websocket, wire
from ..errors import OsbError, TerminalError
from ..terminal_events import (
    Closed, Connected, ErrorOutput, Exited, Refused, Replayed, TerminalEvent, TerminalOutput,
)
from . import net
from .transport import Target

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncTerminals:
    """The terminals of a sandbox, by `sandbox.terminals`."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def create(
        self, cwd: str | None = None, command: str | None = None, *, size: tuple[int, int] | None = None
    ) -> AsyncTerminal:
        """Makes a terminal: an interactive shell, or this shell text, in this directory, with a `size` of
        columns and rows; a shell that is told its size only while it starts may miss it."""
        target = await self._sandbox._exec()
        columns, rows = size or (None, None)
        given = (("cwd", cwd), ("command", command), ("cols", columns), ("rows", rows))
        order = {name: value for name, value in given if value is not None}
        return self.get((await target.json("POST", "/pty", json=order))["session_id"])

    def get(self, id: str) -> AsyncTerminal:
        """A terminal by its id, without any request."""
        return AsyncTerminal(self._sandbox, id)


class AsyncTerminal:
    """A terminal. Leaving its block ends it; leaving a connection's block does not."""

    def __init__(self, sandbox: AsyncSandbox, id: str) -> None:
        self.id = id
        self._sandbox = sandbox

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.delete()

    async def status(self) -> wire.PtyStatus:
        """How it stands."""
        target = await self._sandbox._exec()
        return wire.PtyStatus.from_wire(await target.json("GET", f"/pty/{_http.segment(self.id)}"))

    async def delete(self) -> None:
        """Ends it."""
        target = await self._sandbox._exec()
        await target.whole("DELETE", f"/pty/{_http.segment(self.id)}")

    async def connect(
        self, *, pipes: bool = False, since: int | None = None, take_over: bool = False,
        size: tuple[int, int] | None = None,
    ) -> AsyncTerminalConnection:
        """Connects to it; the first connection starts its shell. `pipes` are instead of a terminal, with
        error output apart; `since` replays output from this byte on; `take_over` takes it from the
        client that holds it; `size` are the columns and rows that it gets before its shell starts or anything
        is replayed. Pipes have no size."""
        target = await self._sandbox._exec()
        columns, rows = size or (None, None)
        query = _http.query(("pty", "0" if pipes else None), ("since", since), ("takeover", "1" if take_over else None),
                            ("cols", columns), ("rows", rows))
        key = _websocket.new_key()
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": key}
        answer = await target.send("GET", f"/pty/{_http.segment(self.id)}/ws", query=query, headers=headers)
        if answer.status != 101 or answer.headers.get("sec-websocket-accept") != _websocket.accept_of(key):
            answer.close()
            raise TerminalError("what answered is not a WebSocket")
        connection, rest = answer.take_over()
        return AsyncTerminalConnection(connection, rest)


class AsyncTerminalConnection:
    """A connection to a terminal: iterate over it for what comes. One task or thread may read while
    another writes. Leaving its block leaves the terminal, which goes on without a client."""

    def __init__(self, connection: net.Connection, rest: bytes) -> None:
        self._connection = connection
        self._decoder = _websocket.Decoder()
        self._ready = self._decoder.feed(rest)
        self._is_closed = False

    async def __aenter__(self) -> AsyncTerminalConnection:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[TerminalEvent]:
        while True:
            event = await self.next()
            if event is None:
                return
            yield event

    async def next(self) -> TerminalEvent | None:
        """What comes next; nothing after `Closed`."""
        while True:
            while self._ready:
                event = await self._event(*self._ready.pop(0))
                if event is not None:
                    return event
            if self._is_closed:
                return None
            self._ready = self._decoder.feed(await self._receive())

    async def _receive(self) -> bytes:
        try:
            data = await self._connection.read()
        except OSError as error:
            if self._is_closed:
                return b""
            raise TerminalError(error.strerror or str(error)) from error
        if not data and not self._is_closed:
            self._is_closed = True
            raise TerminalError("it ended without a goodbye")
        return data

    async def _event(self, opcode: int, payload: bytes) -> TerminalEvent | None:
        if opcode == _websocket.BINARY:
            return _binary(payload)
        if opcode == _websocket.TEXT:
            return _text(payload)
        if opcode == _websocket.PING:
            await self._send(_websocket.PONG, payload)
        elif opcode == _websocket.CLOSE:
            code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else None
            if not self._is_closed:
                try:
                    await self._send(_websocket.CLOSE, payload[:2])
                except OsbError:
                    pass
            self._is_closed = True
            self._connection.close()
            return Closed(code, payload[2:].decode("utf-8", "replace"))
        return None

    async def write(self, data: str | bytes) -> None:
        """Sends keystrokes."""
        await self._send(_websocket.BINARY, b"\x00" + (data.encode() if isinstance(data, str) else data))

    async def resize(self, columns: int, rows: int) -> None:
        """Says that the window has a new size."""
        await self._message({"type": "resize", "cols": columns, "rows": rows})

    async def signal(self, signal: wire.PtySignal) -> None:
        """Sends a signal to what runs in front: `SIGINT` and so on."""
        await self._message({"type": "signal", "signal": signal})

    async def ping(self) -> None:
        """Says that this client lives; only one that does not read needs this."""
        await self._message({"type": "ping"})

    async def close(self) -> None:
        """Leaves the terminal."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._send(_websocket.CLOSE, struct.pack("!H", 1000))
        except OsbError:
            pass
        self._connection.close()

    async def _message(self, message: dict[str, Any]) -> None:
        await self._send(_websocket.TEXT, json.dumps(message).encode())

    async def _send(self, opcode: int, payload: bytes) -> None:
        frame = _websocket.encode(opcode, payload)
        try:
            await self._connection.write(frame)
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


class AsyncTunnel:
    """A plain byte stream to a port of a sandbox, for whatever does not speak HTTP."""

    def __init__(self, connection: net.Connection, rest: bytes) -> None:
        self._connection = connection
        self._rest = rest

    async def __aenter__(self) -> AsyncTunnel:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self.close()

    async def read(self) -> bytes:
        """What has come; nothing at the end."""
        data, self._rest = self._rest, b""
        return data or await self._connection.read()

    async def write(self, data: bytes) -> None:
        await self._connection.write(data)

    def close(self) -> None:
        self._connection.close()


async def open_tunnel(target: Target) -> AsyncTunnel:
    answer = await target.send("GET", "/", headers={"Connection": "upgrade", "Upgrade": "tcp"})
    if answer.status != 101:
        answer.close()
        raise TerminalError("the port cannot be reached as a byte stream")
    return AsyncTunnel(*answer.take_over())
