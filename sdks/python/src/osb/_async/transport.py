"""Requests and their answers: kept connections, deadlines, errors, and the one place that decides
what is sent again. Knows nothing of sandboxes.
"""

from __future__ import annotations

import json
import threading
from typing import Any, AsyncIterator, Mapping, Union

from .. import _http
from .._http import Address, Body, Head
from .._wire import to_wire
from ..config import Config
from ..errors import ApiError, ConnectionFailed, OsbError, TimedOut, Unreadable
from . import net

# Connections are kept this long for the next request, as in the other SDKs.
KEEP_IDLE = 30.0
# Half an error is still an error; it is not waited for longer than this.
ERROR_SECONDS = 5.0
# The deadline that the configuration says.
USUAL = -1.0

Pieces = AsyncIterator[bytes]
Payload = Union[bytes, Pieces, None]


class Target:
    """A place that requests go to, with the headers they carry."""

    def __init__(self, transport: Transport, url: str, headers: Mapping[str, str]) -> None:
        self.transport = transport
        self.address = Address(url)
        config = transport.config
        self.headers = {"Host": self.address.authority, "User-Agent": config.user_agent, "Accept": "*/*"}
        for name, value in {**config.headers, **headers}.items():
            self.headers[name] = _http.checked(name, value)

    async def send(
        self, method: str, path: str, *, query: str = "", headers: Mapping[str, str] | None = None,
        json: Any = None, body: Payload = None, content_type: str = "application/octet-stream",
        length: int | None = None, timeout: float | None = USUAL,
    ) -> Response:
        """Sends it, again where that is safe, and answers what came with a good status. The deadline
        is for the answer's head; the body may take longer."""
        if json is not None:
            body, content_type = _dump(json), "application/json"
        request = Request(self, method, path, query, headers, body, content_type, length)
        limit = self.transport.config.request_timeout if timeout == USUAL else timeout
        return await self.transport.send(request, limit)

    async def json(self, method: str, path: str, **given: Any) -> Any:
        """Sends it and reads the answer as JSON; nothing where it has no body."""
        body = await self.whole(method, path, **given)
        return _http.read_json(body, f"{method} {path}") if body else None

    async def whole(self, method: str, path: str, **given: Any) -> bytes:
        """Sends it and reads the whole answer."""
        limit = given.get("timeout", USUAL)
        answer = await self.send(method, path, **given)
        return await answer.read(self.transport.config.request_timeout if limit == USUAL else limit)


def _dump(value: Any) -> bytes:
    return json.dumps(to_wire(value), separators=(",", ":")).encode()


class Request:
    """One request, ready to be sent as often as it must."""

    def __init__(
        self, target: Target, method: str, path: str, query: str, headers: Mapping[str, str] | None,
        body: Payload, content_type: str, length: int | None,
    ) -> None:
        self.target = target
        self.method = method
        self.path = path
        self.what = f"{method} {path}"
        self.url = f"{target.address.url}{path}"
        self.body = body
        all_headers = {**target.headers, **(headers or {})}
        # A server that is given a key does once what it is asked twice.
        self.is_idempotent = method in _http.IDEMPOTENT or "Idempotency-Key" in all_headers
        if body is not None:
            all_headers["Content-Type"] = content_type
            if isinstance(body, bytes):
                length = len(body)
            if length is None:
                all_headers["Transfer-Encoding"] = "chunked"
            else:
                all_headers["Content-Length"] = str(length)
        elif method in ("POST", "PUT", "PATCH"):
            all_headers["Content-Length"] = "0"
        self.is_chunked = body is not None and length is None
        full = target.address.prefix + path + (f"?{query}" if query else "")
        self.head = _http.request_head(method, full or "/", all_headers)

    @property
    def is_repeatable(self) -> bool:
        return self.body is None or isinstance(self.body, bytes)

    def may_repeat(self, error: OsbError) -> bool:
        if not self.is_repeatable:
            return False
        if isinstance(error, ConnectionFailed):
            return error.is_unsent or self.is_idempotent
        return isinstance(error, ApiError) and self.is_idempotent and error.is_retryable


class Response:
    """An answer whose head has come. Its connection is kept for others once the body was read."""

    def __init__(self, request: Request, connection: net.Connection, head: Head, rest: bytes) -> None:
        self.head = head
        self.headers = head.headers
        self.status = head.status
        self._request = request
        self._connection: net.Connection | None = connection
        self._rest = rest
        self._body = Body(request.method, head, request.what)
        if self._body.is_done and head.status != 101:
            self._release()

    async def piece(self, timeout: float | None = None) -> bytes | None:
        """The next bytes of the body; nothing at its end."""
        deadline = None if timeout is None else net.now() + timeout
        while True:
            connection = self._connection
            if connection is None:
                return None
            data, self._rest = self._rest, b""
            if not data:
                data = await self._receive(connection, deadline, timeout)
                if not data:
                    self.close()
                    if self._body.ends:
                        return None
                    raise ConnectionFailed(self._request.url, "the connection ended within the answer", False)
            content = self._body.feed(data)
            if self._body.is_done:
                self._release()
            if content:
                return content

    async def _receive(self, connection: net.Connection, deadline: float | None, timeout: float | None) -> bytes:
        try:
            return await connection.read(deadline)
        except net.Expired:
            self.close()
            raise TimedOut(self._request.what, timeout or 0.0) from None
        except (OSError, ValueError) as error:
            self.close()
            raise ConnectionFailed(self._request.url, str(error) or type(error).__name__, False) from error
        except BaseException:
            self.close()
            raise

    async def read(self, timeout: float | None, most: int = _http.ANSWER_BYTES_MAX) -> bytes:
        """The whole body."""
        deadline = None if timeout is None else net.now() + timeout
        pieces: list[bytes] = []
        size = 0
        while True:
            left = None if deadline is None else deadline - net.now()
            piece = await self.piece(left)
            if piece is None:
                return b"".join(pieces)
            size += len(piece)
            if size > most:
                self.close()
                raise Unreadable(self._request.what, f"it is longer than {most} bytes")
            pieces.append(piece)

    def take_over(self) -> tuple[net.Connection, bytes]:
        """The raw connection after an upgrade, and what came on it already."""
        connection, self._connection = self._connection, None
        assert connection is not None, "an upgrade keeps its connection"
        return connection, self._rest

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self.head.keeps and not self._rest and self._body.ends:
            self._request.target.transport.keep(self._request.target.address, connection)
        else:
            connection.close()

    def close(self) -> None:
        """Gives the rest of the answer up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Transport:
    """Sends requests; keeps connections for the next ones. Threads may share it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._idle: dict[tuple[bool, str, int], list[tuple[net.Connection, float]]] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def keep(self, address: Address, connection: net.Connection) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(address.key, []).append((connection, net.now()))
                return
        connection.close()

    def _kept(self, address: Address) -> net.Connection | None:
        """A connection that waits, the one used last, because it is the likeliest to be alive."""
        while True:
            with self._lock:
                waiting = self._idle.get(address.key)
                if not waiting:
                    return None
                connection, since = waiting.pop()
            if net.now() - since < KEEP_IDLE and not connection.is_stale:
                return connection
            connection.close()

    def close(self) -> None:
        """Closes the connections that wait; requests under way go on."""
        with self._lock:
            self._is_closed = True
            waiting = [connection for each in self._idle.values() for connection, _ in each]
            self._idle.clear()
        for connection in waiting:
            connection.close()

    async def send(self, request: Request, timeout: float | None) -> Response:
        policy = self.config.retry
        delay = policy.first_delay
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(request, timeout)
            except OsbError as error:
                if attempt > policy.attempts or not request.may_repeat(error):
                    raise
                asked = error.retry_after if isinstance(error, ApiError) else None
            # There is no event to wait for: the other side is busy or away.
            await net.sleep(min(delay if asked is None else asked, policy.longest_delay))
            # Only a second attempt needs it, and it loads OpenSSL.
            import random

            # Spread out, so that clients that failed together do not return together.
            delay = min(random.uniform(policy.first_delay, max(delay * 3, policy.first_delay)), policy.longest_delay)

    async def _attempt(self, request: Request, timeout: float | None) -> Response:
        deadline = None if timeout is None else net.now() + timeout
        address = request.target.address
        connection = self._kept(address)
        if connection is not None:
            try:
                return await self._exchange(request, connection, deadline, timeout)
            except ConnectionFailed:
                # Closed by the other side just when it was used again: another is tried at once,
                # where that is safe.
                if not request.is_idempotent or not request.is_repeatable:
                    raise
        try:
            connection = await net.Connection.open(address, deadline)
        except net.Expired:
            raise TimedOut(f"connecting to {address.authority}", timeout or 0.0) from None
        except OSError as error:
            raise ConnectionFailed(request.url, error.strerror or str(error), True) from error
        return await self._exchange(request, connection, deadline, timeout)

    async def _exchange(
        self, request: Request, connection: net.Connection, deadline: float | None, timeout: float | None
    ) -> Response:
        try:
            await self._write(request, connection, deadline)
            while True:
                head, rest = await self._read_head(request, connection, deadline)
                if head.status >= 200 or head.status == 101:
                    break
        except net.Expired:
            connection.close()
            raise TimedOut(request.what, timeout or 0.0) from None
        except OSError as error:
            connection.close()
            raise ConnectionFailed(request.url, error.strerror or str(error), False) from error
        except BaseException:
            connection.close()
            raise
        response = Response(request, connection, head, rest)
        if head.status < 300:
            return response
        try:
            body = await response.read(ERROR_SECONDS, _http.ERROR_BYTES_MAX)
        except OsbError:
            body = b""
        raise _http.refusal(request.what, head, body)

    async def _write(self, request: Request, connection: net.Connection, deadline: float | None) -> None:
        body = request.body
        if body is None or isinstance(body, bytes):
            await connection.write(request.head + (body or b""), deadline)
            return
        await connection.write(request.head, deadline)
        try:
            async for piece in body:
                if piece:
                    framed = b"%x\r\n%b\r\n" % (len(piece), piece) if request.is_chunked else piece
                    await connection.write(framed, deadline)
            if request.is_chunked:
                await connection.write(b"0\r\n\r\n", deadline)
        except (BrokenPipeError, ConnectionResetError):
            # Refused before all of it was sent: the answer says why, if one came.
            return

    async def _read_head(
        self, request: Request, connection: net.Connection, deadline: float | None
    ) -> tuple[Head, bytes]:
        data = b""
        while True:
            end = data.find(b"\r\n\r\n")
            if end >= 0:
                return _http.parse_head(data[:end], request.what), data[end + 4 :]
            if len(data) > _http.HEAD_BYTES_MAX:
                raise Unreadable(request.what, "its head does not end")
            if data and not data.startswith(b"HTTP/"[: len(data)]):
                raise Unreadable(request.what, f"it begins with {data[:60]!r}, which is not HTTP")
            piece = await connection.read(deadline)
            if not piece:
                raise ConnectionFailed(request.url, "the connection was closed without an answer", False)
            data += piece
