"""Everything that can go wrong, as classes that say what happened and what to do next.

Exit codes of commands and exceptions of code are not errors of the SDK: they are in the `Output`.
"""

from __future__ import annotations

__all__ = [
    "ApiError", "ConfigError", "ConnectionFailed", "Failed", "InvalidArgument", "NotReady", "OsbError", "PoolClosed",
    "PoolEmpty", "StreamBroken", "TerminalError", "TimedOut", "Unreadable",
]

_PASSING = (429, 502, 503)


class OsbError(Exception):
    """What every error of this package is.

    `remedy` says what to do next. `status`, `code` and `request_id` are those of the answer behind
    the error, where there is one.
    """

    kind = "error"
    remedy = ""
    status: int | None = None
    code: str | None = None
    request_id: str | None = None

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.message = message
        if remedy:
            self.remedy = remedy

    @property
    def is_not_found(self) -> bool:
        """Whether what was asked for does not exist."""
        return self.status == 404

    @property
    def is_unauthorized(self) -> bool:
        """Whether the key is missing, wrong, or may not do this."""
        return self.status in (401, 403)

    @property
    def is_retryable(self) -> bool:
        """Whether the same call may succeed later. Whether repeating it is safe is another question:
        what is safe was repeated already."""
        return self.status in _PASSING


class ApiError(OsbError):
    """The server, or the daemon in the sandbox, answered with an error."""

    kind = "api"

    def __init__(
        self, what: str, status: int, message: str, code: str | None = None, request_id: str | None = None,
        retry_after: float | None = None, details: list[str] | None = None,
    ) -> None:
        notes = [f"{what}: {status}"] + ([code] if code else []) + ([f"request {request_id}"] if request_id else [])
        super().__init__(f"{message} ({', '.join(notes)})", _remedy(status, code))
        self.message = message
        self.what = what
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        self.details = details or []


def _remedy(status: int, code: str | None) -> str:
    if status in (401, 403):
        return "check the API key (OPEN_SANDBOX_API_KEY)"
    if status == 404 and code and code.endswith("SANDBOX_NOT_FOUND"):
        return "it may have expired or been ended; make another"
    if status in _PASSING:
        return "try again later"
    if status == 501:
        return "this server does not offer it"
    return ""


class ConnectionFailed(OsbError):
    """No answer came: the other side cannot be reached, or the connection broke."""

    kind = "connection"

    def __init__(self, url: str, reason: str, is_unsent: bool) -> None:
        super().__init__(f"{url} cannot be reached: {reason}", "check the domain and that the server runs")
        self.url = url
        self.is_unsent = is_unsent

    @property
    def is_retryable(self) -> bool:
        return True


class TimedOut(OsbError, TimeoutError):
    """Something took longer than it may."""

    kind = "timeout"

    def __init__(self, what: str, after: float) -> None:
        super().__init__(f"{what} took longer than {after:g} s", "try again, or allow it more time")
        self.what = what
        self.after = after

    @property
    def is_retryable(self) -> bool:
        return True


class Unreadable(OsbError):
    """An answer is not what the protocol says."""

    kind = "unreadable"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"the answer of {what} is not readable: {reason}", "is this an OpenSandbox server?")


class StreamBroken(OsbError):
    """A stream of events ended before its last event and could not be taken up again."""

    kind = "stream_broken"

    def __init__(self, what: str, reason: str, cause: OsbError | None = None) -> None:
        super().__init__(f"the stream of {what} broke off: {reason}", "ask for its status, or run it again")
        _inherit(self, cause)


class NotReady(OsbError):
    """A sandbox was not ready in time."""

    kind = "not_ready"

    def __init__(self, id: str, waited: float, cause: OsbError | None = None) -> None:
        super().__init__(
            f"sandbox {id} was not ready after {waited:g} s", "look at its diagnostics, or wait longer"
        )
        _inherit(self, cause)


class Failed(OsbError):
    """A sandbox, snapshot or command got into a state from which what was waited for never comes."""

    kind = "failed"

    def __init__(self, id: str, state: str, reason: str) -> None:
        super().__init__(f"{id} is {state}: {reason}")
        self.state = state


class ConfigError(OsbError):
    """The connection's settings are not usable."""

    kind = "config"

    def __init__(self, origin: str, reason: str) -> None:
        super().__init__(f"{origin}: {reason}")
        self.origin = origin


class InvalidArgument(OsbError, ValueError):
    """A call makes no sense, and nothing was sent."""

    kind = "invalid_argument"


class TerminalError(OsbError):
    """A terminal's connection failed."""

    kind = "terminal"

    def __init__(self, reason: str) -> None:
        super().__init__(f"the terminal's connection failed: {reason}", "connect to it again")


class PoolEmpty(OsbError):
    """The pool has no idle sandbox and its policy is not to make one."""

    kind = "pool_empty"

    def __init__(self) -> None:
        super().__init__("the pool has no idle sandbox", "wait, make it larger, or let it create on demand")

    @property
    def is_retryable(self) -> bool:
        return True


class PoolClosed(OsbError):
    """The pool was shut down."""

    kind = "pool_closed"

    def __init__(self) -> None:
        super().__init__("the pool is shut down", "start another")


def _inherit(error: OsbError, cause: OsbError | None) -> None:
    if cause is not None:
        error.__cause__ = cause
        error.status, error.code, error.request_id = cause.status, cause.code, cause.request_id
