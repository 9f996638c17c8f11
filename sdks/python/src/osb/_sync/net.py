"""Input and output for the blocking client: connections, waiting, threads, by the standard library.

`osb._async.net` offers the same to the asynchronous client; nothing else differs between the two.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import Any, Callable

from .._http import Address

__all__ = ["Connection", "Expired", "Signal", "Task", "now", "read_file", "sleep"]

READ_BYTES = 256 * 1024
# A connection that is silent for so long is asked whether it lives, so that a stream whose other
# side vanished ends with an error and not never.
KEEPALIVE_SECONDS = 20

now = time.monotonic
sleep = time.sleep


class Expired(Exception):
    """The deadline of a read, write or connect has passed."""


class Connection:
    """One TCP connection, perhaps with TLS."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw
        # Frames of two threads must not mix.
        self._writing = threading.Lock()

    @classmethod
    def open(cls, address: Address, deadline: float | None) -> Connection:
        try:
            raw = socket.create_connection((address.host, address.port), _left(deadline))
            prepare(raw)
            if address.tls:
                import ssl

                raw = ssl.create_default_context().wrap_socket(raw, server_hostname=address.host)
        except TimeoutError:
            raise Expired from None
        return cls(raw)

    def write(self, data: bytes, deadline: float | None = None) -> None:
        # Left alone where it is right already: another thread may be reading.
        if deadline is not None or self._raw.gettimeout() is not None:
            self._raw.settimeout(_left(deadline))
        try:
            with self._writing:
                self._raw.sendall(data)
        except TimeoutError:
            raise Expired from None

    def read(self, deadline: float | None = None) -> bytes:
        """What has come; nothing at the end."""
        self._raw.settimeout(_left(deadline))
        try:
            return self._raw.recv(READ_BYTES)
        except TimeoutError:
            raise Expired from None

    @property
    def is_stale(self) -> bool:
        """Whether the other side closed it, or said something that nobody asked for."""
        return is_readable(self._raw)

    def close(self) -> None:
        try:
            # Wakes a thread that reads from it.
            self._raw.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._raw.close()


def _left(deadline: float | None) -> float | None:
    # 0 would mean "do not wait at all", which is another kind of socket.
    return None if deadline is None else max(0.001, deadline - now())


def prepare(raw: socket.socket) -> None:
    """Small requests go at once, and a peer that vanished is noticed."""
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)


def is_readable(raw: socket.socket) -> bool:
    descriptor = raw.fileno()
    if descriptor < 0:
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


class Signal:
    """Wakes those who wait for a change."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def notify(self) -> None:
        event, self._event = self._event, threading.Event()
        event.set()

    def waiter(self) -> Callable[[float | None], bool]:
        """Taken before the state is looked at, so that no change in between is missed."""
        return self._event.wait


class Task:
    """Something that goes on beside the caller."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()


def read_file(file: Any, size: int) -> bytes:
    piece: bytes = file.read(size)
    return piece
