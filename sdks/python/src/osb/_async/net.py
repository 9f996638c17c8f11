"""Input and output for the asynchronous client: connections, waiting, tasks, by asyncio.

`osb._sync.net` offers the same to the blocking client; nothing else differs between the two.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from typing import Any, Awaitable, Callable, Coroutine, Generator, Generic, TypeVar

from .._http import Address

__all__ = ["Connection", "Expired", "Pending", "Signal", "Task", "now", "pending", "read_file", "sleep"]

READ_BYTES = 256 * 1024
# A connection that is silent for so long is asked whether it lives, so that a stream whose other
# side vanished ends with an error and not never.
KEEPALIVE_SECONDS = 20

_T = TypeVar("_T")
now = time.monotonic
sleep = asyncio.sleep


class Expired(Exception):
    """The deadline of a read, write or connect has passed."""


class Connection:
    """One TCP connection, perhaps with TLS. A failed or cancelled call leaves it closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_expired = False

    @classmethod
    async def open(cls, address: Address, deadline: float | None) -> Connection:
        context = None
        if address.tls:
            import ssl

            context = ssl.create_default_context()
        opening = asyncio.open_connection(address.host, address.port, ssl=context, limit=READ_BYTES)
        try:
            limit = None if deadline is None else max(0.0, deadline - now())
            reader, writer = await asyncio.wait_for(opening, limit)
        except asyncio.TimeoutError:
            raise Expired from None
        prepare(writer.get_extra_info("socket"))
        return cls(reader, writer)

    async def write(self, data: bytes, deadline: float | None = None) -> None:
        self._writer.write(data)
        await self._within(self._writer.drain(), deadline)

    async def read(self, deadline: float | None = None) -> bytes:
        """What has come; nothing at the end."""
        return await self._within(self._reader.read(READ_BYTES), deadline)

    async def _within(self, waiting: Awaitable[_T], deadline: float | None) -> _T:
        if deadline is None:
            return await waiting
        # Cheaper than `wait_for`, which makes a task for every read.
        timer = asyncio.get_running_loop().call_later(max(0.0, deadline - now()), self._expire)
        try:
            result = await waiting
        except OSError:
            if self._is_expired:
                raise Expired from None
            raise
        finally:
            timer.cancel()
        if self._is_expired:
            raise Expired
        return result

    def _expire(self) -> None:
        self._is_expired = True
        self._writer.transport.abort()

    @property
    def is_stale(self) -> bool:
        """Whether the other side closed it, or said something that nobody asked for."""
        raw = self._writer.get_extra_info("socket")
        return self._writer.transport.is_closing() or self._reader.at_eof() or raw is None or is_readable(raw)

    def close(self) -> None:
        self._writer.close()


def prepare(raw: Any) -> None:
    """Small requests go at once, and a peer that vanished is noticed."""
    if raw is None:
        return
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)


def is_readable(raw: Any) -> bool:
    descriptor = raw.fileno()
    if descriptor < 0:
        return True
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])


class Pending(Generic[_T]):
    """Something about to be made: `await` it, or enter it with `async with`."""

    def __init__(self, made: Coroutine[Any, Any, _T]) -> None:
        self._made = made
        self._entered: Any = None

    def __await__(self) -> Generator[Any, None, _T]:
        return self._made.__await__()

    async def __aenter__(self) -> _T:
        self._entered = await self._made
        await self._entered.__aenter__()
        return self._entered  # type: ignore[no-any-return]

    async def __aexit__(self, *raised: Any) -> None:
        await self._entered.__aexit__(*raised)


def pending(made: Coroutine[Any, Any, _T]) -> Pending[_T]:
    return Pending(made)


class Signal:
    """Wakes those who wait for a change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    def waiter(self) -> Callable[[float | None], Coroutine[Any, Any, bool]]:
        """Taken before the state is looked at, so that no change in between is missed."""
        event = self._event

        async def wait(timeout: float | None) -> bool:
            try:
                await asyncio.wait_for(event.wait(), timeout)
            except asyncio.TimeoutError:
                return False
            return True

        return wait


class Task:
    """Something that goes on beside the caller."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.ensure_future(run())

    @property
    def is_done(self) -> bool:
        return self._task.done()

    async def join(self) -> None:
        await asyncio.wait([self._task])


async def read_file(file: Any, size: int) -> bytes:
    """Reads from a file of this machine, which may be slow, beside everything else."""
    piece: bytes = await asyncio.get_running_loop().run_in_executor(None, file.read, size)
    return piece
