# Made from osb/_async/execution.py by make-sync. Do not edit.
"""What runs in a sandbox, as a stream of events that outlives broken connections.

A stream of a command that breaks is taken up again where it broke, so that every event is given out
exactly once; that needs numbered events, which the published daemon does not send. Its streams, and
those of sessions and code, end with `StreamBroken` when they break.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Iterator, Callable

from .. import _http
from .._frames import Frames
from ..errors import ConnectionFailed, OsbError, StreamBroken, TimedOut, Unreadable
from ..results import (
    Completed, Count, ErrorEvent, Event, ExecutionFailure, Output, Started, Stderr, Stdout, result_of,
)
from . import net
from .transport import Response, Target

# Attempts to take a broken stream up again without a single event in between: with the growing waits
# between them some ten seconds, in which a server restarts.
RESUME_ATTEMPTS = 8
# The wait before the second attempt in seconds; it doubles from there. The first is made at once.
RESUME_DELAY = 0.1
# After the last event the daemon closes the stream at once. A proxy that keeps it open must not keep
# the caller.
DRAIN_SECONDS = 1.0

COMMAND, SESSION, CODE = "command", "session", "context"

OnText = Callable[[str], None]


class Execution:
    """An execution under way: iterate over it for its events, or ask for its `output`. Closing it lets
    the execution go on without a reader."""

    def __init__(self, answer: Response, kind: str, target: Target) -> None:
        self.id: str | None = None
        self._answer = answer
        self._frames = Frames("an event stream")
        self._kind = kind
        self._target = target
        self._last_seq: int | None = None
        self._failures = 0
        self._ready: deque[Event] = deque()
        self._is_over = False
        self._is_closed = False

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        ready = self._ready
        while True:
            while ready:
                yield ready.popleft()
            if not self._more():
                return

    def next(self) -> Event | None:
        """The next event; nothing at the end."""
        while not self._ready:
            if not self._more():
                return None
        return self._ready.popleft()

    def output(self, on_stdout: OnText | None = None, on_stderr: OnText | None = None) -> Output:
        """Reads to the end and answers everything that was not read yet."""
        output = Output()
        output.id = self.id
        for event in self:
            output.push(event)
            if on_stdout is not None and type(event) is Stdout:
                on_stdout(event.text)
            elif on_stderr is not None and type(event) is Stderr:
                on_stderr(event.text)
        return output

    def close(self) -> None:
        """Stops reading. What runs goes on."""
        self._is_closed = True
        self._answer.close()

    def _more(self) -> bool:
        """Waits for events; whether there may be more."""
        if self._is_closed:
            return False
        while not self._ready:
            try:
                piece = self._answer.piece(DRAIN_SECONDS if self._is_over else None)
            except (ConnectionFailed, TimedOut) as error:
                if self._is_over or self._is_closed:
                    # Whatever happens now, everything has come.
                    return False
                self._resume(error)
                continue
            values = self._frames.finish() if piece is None else self._frames.feed(piece)
            self._take(values)
            if piece is None and not self._ready:
                if self._is_over or self._is_closed:
                    return False
                self._resume(None)
        return True

    def _take(self, values: list[Any]) -> None:
        push = self._ready.append
        is_line = self._kind != CODE
        for value in values:
            kind = value.get("type")
            seq = value.get("seq")
            if seq is not None:
                if self._last_seq is not None and seq <= self._last_seq:
                    continue
                self._last_seq = seq
                self._failures = 0
            text = value.get("text") or ""
            if seq is None and is_line and not text.endswith("\n"):
                # Events without numbers are lines without their ends, except those of code.
                text += "\n"
            if kind == "stdout":
                push(Stdout(text))
            elif kind == "stderr":
                push(Stderr(text))
            else:
                self._take_other(kind, value, text)

    def _take_other(self, kind: str | None, value: dict[str, Any], text: str) -> None:
        push = self._ready.append
        if kind == "init":
            self.id = text.rstrip("\n")
            push(Started(self.id))
        elif kind == "result":
            push(result_of(value.get("results") or {}, value.get("execution_count")))
        elif kind == "execution_count":
            push(Count(value.get("execution_count") or 0))
        elif kind == "error":
            self._is_over = True
            error = value.get("error") or {}
            failure = ExecutionFailure(error.get("ename", ""), error.get("evalue", ""), error.get("traceback") or [])
            push(ErrorEvent(failure))
        elif kind == "execution_complete":
            self._is_over = True
            took = value.get("execution_time")
            push(Completed(None if took is None else took / 1000))
        elif kind is None and "code" in value:
            raise StreamBroken(self._what, f"{value.get('message')} ({value['code']})")
        elif kind is None:
            raise Unreadable("an event stream", "an event has no type")

    @property
    def _what(self) -> str:
        return f"{self._kind} {self.id or '(not begun)'}"

    def _resume(self, cause: OsbError | None) -> None:
        """Goes on after the last event that came."""
        if self._kind != COMMAND or self.id is None or self._last_seq is None:
            reason = "the connection ended before the last event, and this stream cannot be taken up again"
            raise StreamBroken(self._what, reason, cause)
        path = f"/command/{_http.segment(self.id)}/events"
        while self._failures < RESUME_ATTEMPTS:
            if self._failures:
                net.sleep(RESUME_DELAY * 2 ** (self._failures - 1))
            self._failures += 1
            try:
                answer = self._target.send("GET", path, query=_http.query(("after", self._last_seq)))
            except OsbError as error:
                if not error.is_retryable:
                    raise StreamBroken(self._what, "its rest is not to be had", error) from error
                cause = error
                continue
            self._answer, self._frames = answer, Frames("an event stream")
            if self._is_closed:
                answer.close()
            return
        raise StreamBroken(self._what, "the sandbox could not be reached again", cause)


class Stream:
    """Values of a stream as they come: metrics, lifecycle events, logs, progress. Iterate over it."""

    def __init__(self, answer: Response, what: str, read: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._frames = Frames(what)
        self._read = read
        self._ready: deque[Any] = deque()
        self._is_closed = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        while True:
            value = self.next()
            if value is None:
                return
            yield value

    def next(self, timeout: float | None = None) -> Any:
        """The next value; nothing at the end."""
        while not self._ready:
            if self._is_closed:
                return None
            try:
                piece = self._answer.piece(timeout)
            except ConnectionFailed:
                if self._is_closed:
                    return None
                raise
            if piece is None:
                self.close()
                self._ready.extend(self._values(self._frames.finish()))
            else:
                self._ready.extend(self._values(self._frames.feed(piece)))
        return self._ready.popleft()

    def _values(self, values: list[Any]) -> list[Any]:
        try:
            return [self._read(value) for value in values]
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(self._frames.what, str(error)) from error

    def close(self) -> None:
        """Stops reading."""
        self._is_closed = True
        self._answer.close()
