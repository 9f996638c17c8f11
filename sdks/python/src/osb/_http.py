"""HTTP/1.1 without any input or output: requests to bytes, bytes to answers.

Knows nothing of sockets, so that the blocking and the asynchronous client share it.
"""

from __future__ import annotations

import json
from typing import Any

from .errors import ApiError, ConfigError, InvalidArgument, Unreadable

HEAD_BYTES_MAX = 64 * 1024
# An answer that is read into memory as a whole is at most this long. Listings of large trees have
# some tens of MiB; what is longer is a fault or an attack.
ANSWER_BYTES_MAX = 256 * 1024 * 1024
# As much of an error's body is read as any real one has.
ERROR_BYTES_MAX = 64 * 1024

# What each byte is in a URL: itself where it is unreserved (RFC 3986, section 2.3). `urllib.parse` does the same, but
# takes longer to be imported than the rest of this package together.
_IN_URL = [chr(byte) if chr(byte).isalnum() and byte < 128 or chr(byte) in "-_.~" else f"%{byte:02X}" for byte in range(256)]

IDEMPOTENT = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict",
           429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
           503: "Service Unavailable", 504: "Gateway Timeout"}


class Address:
    """Where a URL leads: scheme, host and port to connect to, the Host header, the path before others."""

    __slots__ = ("url", "tls", "host", "port", "authority", "prefix", "key")

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        authority, slash, path = rest.partition("/")
        authority = authority.rpartition("@")[2]
        self.url = url.rstrip("/")
        self.tls = scheme == "https"
        self.authority = authority
        self.prefix = (slash + path).rstrip("/")
        host, port = authority, ""
        if authority.startswith("["):
            host, _, after = authority[1:].partition("]")
            port = after.lstrip(":")
        elif authority.count(":") == 1:
            host, port = authority.split(":")
        try:
            self.port = int(port) if port else (443 if self.tls else 80)
        except ValueError:
            raise ConfigError("domain", f"{authority!r} is not host[:port]") from None
        self.host = host
        self.key = (self.tls, self.host, self.port)


class Head:
    """The head of an answer."""

    __slots__ = ("status", "headers", "version")

    def __init__(self, status: int, headers: dict[str, str], version: str) -> None:
        self.status = status
        self.headers = headers
        self.version = version

    @property
    def keeps(self) -> bool:
        """Whether the connection may carry another request."""
        said = self.headers.get("connection", "").lower()
        return "close" not in said and (self.version != "HTTP/1.0" or "keep-alive" in said)


def checked(name: str, value: str) -> str:
    """A header's value; one that would begin another header is refused."""
    if any(c in "\r\n\0" for c in name + value) or not name or " " in name:
        raise ConfigError(f"header {name!r}", "it has characters that a header cannot have")
    return value


def request_head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def parse_head(data: bytes, what: str) -> Head:
    lines = data.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise Unreadable(what, f"it begins with {lines[0][:60]!r}, which is not HTTP")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return Head(int(parts[1]), headers, parts[0])


class Body:
    """Takes the framing off a body as its bytes arrive.

    `feed` answers the content; `is_done` says that the last byte has come. A body without a length
    ends with its connection, which `ends` says.
    """

    __slots__ = ("left", "is_chunked", "is_done", "_buffer", "_in_trailer", "what")

    def __init__(self, method: str, head: Head, what: str) -> None:
        self.what = what
        self.left: int | None = None
        self.is_chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
        self.is_done = method == "HEAD" or head.status in (204, 304) or head.status < 200
        self._buffer = b""
        self._in_trailer = False
        if not self.is_chunked and "content-length" in head.headers:
            try:
                self.left = int(head.headers["content-length"])
            except ValueError:
                raise Unreadable(what, "its length is not a number") from None
            self.is_done = self.is_done or self.left == 0

    def feed(self, data: bytes) -> bytes:
        if self.is_chunked:
            return self._chunks(data)
        if self.left is None:
            return data
        taken = data[: self.left]
        self.left -= len(taken)
        self.is_done = self.left == 0
        return taken

    @property
    def ends(self) -> bool:
        """Whether the end of the connection is the end of the body, and not a break."""
        return self.is_done or (not self.is_chunked and self.left is None)

    def _chunks(self, data: bytes) -> bytes:
        data = self._buffer + data if self._buffer else data
        out: list[bytes] = []
        at = 0
        while True:
            if self.left:
                # Given out as it comes: an event must not wait for the rest of its chunk.
                piece = data[at : at + self.left]
                if not piece:
                    break
                out.append(piece)
                at += len(piece)
                self.left -= len(piece)
                continue
            if self.left == 0:
                # The line end after a chunk.
                if len(data) - at < 2:
                    break
                at += 2
                self.left = None
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > 1024:
                    raise Unreadable(self.what, "a chunk's length is not readable")
                break
            line = data[at:end]
            at = end + 2
            if self._in_trailer:
                if not line:
                    self.is_done = True
                    break
                continue
            try:
                size = int(line.split(b";")[0], 16)
            except ValueError:
                raise Unreadable(self.what, "a chunk's length is not a number") from None
            if size == 0:
                self._in_trailer = True
            else:
                self.left = size
        self._buffer = data[at:]
        return out[0] if len(out) == 1 else b"".join(out)


def refusal(what: str, head: Head, body: bytes) -> ApiError:
    """An error in the forms of our servers, of the published ones and of proxies between."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        value = None
    fields = value if isinstance(value, dict) else {}
    listed = fields.get("detail")
    details = [_detail(problem) for problem in listed] if isinstance(listed, list) else []
    message = fields.get("message")
    if not isinstance(message, str):
        message = listed if isinstance(listed, str) else "; ".join(details)
    if not message and value is None:
        first = body.decode("utf-8", "replace").strip().split("\n")[0].strip()
        # A page of HTML says less than the status.
        message = "" if first.startswith("<") else first
    if not message:
        message = f"the server answered {REASONS.get(head.status, head.status)}"
    after = head.headers.get("retry-after", "")
    code = fields.get("code")
    return ApiError(
        what, head.status, message,
        code=code if isinstance(code, str) and code else None,
        request_id=head.headers.get("x-request-id") or fields.get("request_id"),
        retry_after=float(after) if after.isdigit() else None,
        details=details,
    )


def _detail(problem: Any) -> str:
    if not isinstance(problem, dict):
        return str(problem)
    place = ".".join(str(step) for step in problem.get("loc", []))
    return f"{place}: {problem.get('msg', '')}"


def read_json(body: bytes, what: str) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise Unreadable(what, str(error)) from None


def quoted(text: str) -> str:
    """Text as it stands in a URL."""
    return "".join([_IN_URL[byte] for byte in text.encode()])


def segment(id: str) -> str:
    """An id as a segment of a path. What would lead to another path is refused."""
    if not isinstance(id, str) or not id or id in (".", ".."):
        raise InvalidArgument(f"{id!r} is not an id")
    return quoted(id)


def query(*pairs: tuple[str, Any]) -> str:
    """A query of the pairs that have a value; a list is the same name again and again."""
    parts = []
    for name, value in pairs:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if each is not None:
                text = ("true" if each else "false") if isinstance(each, bool) else str(each)
                parts.append(f"{quoted(name)}={quoted(text)}")
    return "&".join(parts)
