"""WebSocket frames without any input or output (RFC 6455), as a client writes and reads them."""

from __future__ import annotations

import base64
import os
import struct

from .errors import TerminalError

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# A frame of a terminal carries at most some ten KiB; what is longer is a fault.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024


def new_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """What a server answers that speaks WebSocket (RFC 6455, 4.2.2)."""
    # Only a terminal needs it, and it loads OpenSSL.
    import hashlib

    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def encode(opcode: int, payload: bytes) -> bytes:
    """One whole frame; a client's are masked (5.3)."""
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | length)
    elif length < 65536:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, length)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, length)
    mask = os.urandom(4)
    if not length:
        return head + mask
    # As one large number: a loop over bytes would take a microsecond for each.
    repeated = (mask * (length // 4 + 1))[:length]
    masked = int.from_bytes(payload, "little") ^ int.from_bytes(repeated, "little")
    return head + mask + masked.to_bytes(length, "little")


class Decoder:
    """Puts messages together from bytes as they arrive."""

    __slots__ = ("_buffer", "_parts", "_opcode")

    def __init__(self) -> None:
        self._buffer = b""
        self._parts: list[bytes] = []
        self._opcode = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        self._buffer += data
        messages: list[tuple[int, bytes]] = []
        while True:
            frame = self._frame()
            if frame is None:
                return messages
            is_last, opcode, payload = frame
            if opcode >= CLOSE:
                messages.append((opcode, payload))
                continue
            if opcode:
                self._opcode = opcode
            self._parts.append(payload)
            if is_last:
                messages.append((self._opcode, b"".join(self._parts)))
                self._parts = []

    def _frame(self) -> tuple[bool, int, bytes] | None:
        data = self._buffer
        if len(data) < 2:
            return None
        first, second = data[0], data[1]
        length, at = second & 0x7F, 2
        if length == 126:
            if len(data) < 4:
                return None
            length, at = struct.unpack_from("!H", data, 2)[0], 4
        elif length == 127:
            if len(data) < 10:
                return None
            length, at = struct.unpack_from("!Q", data, 2)[0], 10
        if second & 0x80 or first & 0x70:
            raise TerminalError("a frame came that a server does not send")
        if length + sum(map(len, self._parts)) > MESSAGE_BYTES_MAX:
            raise TerminalError("a message is too long")
        if len(data) < at + length:
            return None
        self._buffer = data[at + length :]
        return bool(first & 0x80), first & 0x0F, data[at : at + length]
