"""A pool of sandboxes on the client's side: some are kept ready, so that taking one costs one request.
The server sees nothing but sandboxes being made and ended.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from .._durations import Seconds, seconds
from ..errors import OsbError, PoolClosed, PoolEmpty, TimedOut
from ..pool_status import PoolStatus
from . import net
from .client import AsyncClient
from .sandbox import DEFAULT_LIFETIME, READY_TIMEOUT, AsyncSandbox

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._options import PoolOptions

# Failures in a row after which the pool waits before it tries again, as in the other SDKs.
DEGRADED_AFTER = 3
# How long it then waits, in seconds. There is no event to wait for: the server is busy or away.
DEGRADED_DELAY = 1.0
# A sandbox waits in the pool at most this long, in seconds.
IDLE_TIMEOUT = 24 * 3600.0


class AsyncPool:
    """Sandboxes that are kept ready. Leaving its block shuts it down.

    `max_idle` are kept ready, `concurrency` made at once. `on_empty` is `create` (make one for the caller)
    or `fail` (with `PoolEmpty`). Everything else is what `AsyncSandbox.create` takes.
    """

    def __init__(
        self, image: str | None = None, *, max_idle: int = 1, concurrency: int = 8, on_empty: str = "create",
        idle_timeout: Seconds = IDLE_TIMEOUT, acquire_timeout: Seconds = READY_TIMEOUT,
        client: AsyncClient | None = None, **sandbox: Unpack[PoolOptions],
    ) -> None:
        self.max_idle = max_idle
        self._client = client or AsyncClient()
        self._sandbox: dict[str, Any] = {"image": image, **sandbox}
        self._concurrency = max(1, concurrency)
        self._on_empty = on_empty
        self._idle_timeout = seconds(idle_timeout)
        self._acquire_timeout = seconds(acquire_timeout)
        self._idle: deque[tuple[AsyncSandbox, float]] = deque()
        self._warming = 0
        self._failures = 0
        self._is_closed = False
        self._changed = net.Signal()
        # Threads share a pool of the blocking client; nothing waits while it is held.
        self._lock = threading.Lock()
        self._keeper: net.Task | None = None

    async def __aenter__(self) -> AsyncPool:
        self.start()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.shutdown()

    def start(self) -> None:
        """Begins to keep sandboxes ready."""
        if self._keeper is None:
            self._keeper = net.Task(self._keep)

    @property
    def status(self) -> PoolStatus:
        """How it stands."""
        return PoolStatus(len(self._idle), self._warming, self.max_idle, self._failures >= DEGRADED_AFTER)

    async def acquire(self, lifetime: Seconds = DEFAULT_LIFETIME) -> AsyncSandbox:
        """Takes a sandbox that is ready; it then lives for so many seconds and belongs to the caller."""
        while True:
            if self._is_closed:
                raise PoolClosed()
            sandbox = self._take()
            if sandbox is None:
                break
            self._changed.notify()
            try:
                await sandbox._ready(self._acquire_timeout)
                await sandbox.renew(lifetime)
            except OsbError:
                # It died while it waited; the next may not have.
                await _discard(sandbox)
                continue
            return sandbox
        if self._on_empty == "fail":
            raise PoolEmpty()
        return await self._make(seconds(lifetime))

    def _take(self, more_than: int = 0) -> AsyncSandbox | None:
        """The one that waited longest, so that all are used; none if no more than so many wait."""
        with self._lock:
            return self._idle.popleft()[0] if len(self._idle) > more_than else None

    def _put(self, sandbox: AsyncSandbox) -> bool:
        """Keeps one that was made; not where the pool became smaller meanwhile."""
        with self._lock:
            self._failures = 0
            if len(self._idle) >= self.max_idle:
                return False
            self._idle.append((sandbox, net.now()))
            return True

    async def _make(self, lifetime: float) -> AsyncSandbox:
        return await AsyncSandbox.create(**self._sandbox, client=self._client, lifetime=lifetime)

    async def resize(self, max_idle: int) -> None:
        """Keeps this many ready from now on; what is too much is ended."""
        with self._lock:
            self.max_idle = max_idle
        self._changed.notify()
        while True:
            surplus = self._take(max_idle)
            if surplus is None:
                return
            await _discard(surplus)

    async def wait_until_warm(self, timeout: Seconds = READY_TIMEOUT) -> None:
        """Waits until as many are ready as should be; fails when making them does."""
        deadline = net.now() + seconds(timeout)
        while True:
            wait = self._changed.waiter()
            status = self.status
            if status.idle >= status.max_idle:
                return
            if status.is_degraded:
                raise PoolEmpty()
            left = deadline - net.now()
            if left <= 0 or not await wait(left):
                raise TimedOut("warming the pool", seconds(timeout))

    async def shutdown(self) -> None:
        """Stops, and ends every sandbox that is ready."""
        self._is_closed = True
        self._changed.notify()
        if self._keeper is not None:
            # The keeper ends when what it is making is made.
            await self._keeper.join()
        while True:
            left = self._take()
            if left is None:
                return
            await _discard(left)

    async def _keep(self) -> None:
        """Makes what is missing, throws away what waited too long."""
        making: list[net.Task] = []
        while not self._is_closed:
            wait = self._changed.waiter()
            making = [task for task in making if not task.is_done]
            for _ in range(self._reserve()):
                making.append(net.Task(self._warm))
            with self._lock:
                left = self._idle[0][1] + self._idle_timeout - net.now() if self._idle else None
            if left is not None and left <= 0:
                old = self._take()
                if old is not None:
                    await _discard(old)
                continue
            await wait(left)
        for task in making:
            await task.join()

    def _reserve(self) -> int:
        """How many are to be made now; they count from here on."""
        with self._lock:
            missing = self.max_idle - len(self._idle) - self._warming
            count = max(0, min(missing, self._concurrency - self._warming))
            self._warming += count
            return count

    async def _warm(self) -> None:
        try:
            # An idle sandbox must outlive its time in the pool by at least one use.
            sandbox = await self._make(self._idle_timeout + DEFAULT_LIFETIME)
            if not self._put(sandbox):
                await _discard(sandbox)
        except OsbError:
            with self._lock:
                self._failures += 1
            self._changed.notify()
            if self._failures >= DEGRADED_AFTER:
                await net.sleep(DEGRADED_DELAY)
        finally:
            with self._lock:
                self._warming -= 1
            self._changed.notify()


async def _discard(sandbox: AsyncSandbox) -> None:
    try:
        await sandbox.kill()
    except OsbError:
        # It ends by itself when this does not work.
        pass
