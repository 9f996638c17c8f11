# Made from osb/_async/commands.py by make-sync. Do not edit.
"""Commands in a sandbox: to the end, as a stream, or in the background; and live shells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

from .. import _http, wire
from .._durations import Seconds, milliseconds
from ..errors import Failed, InvalidArgument, StreamBroken
from ..results import Logs, Output
from .execution import COMMAND, SESSION, Execution, OnText

if TYPE_CHECKING:
    from .sandbox import Sandbox


def _order(
    command: str | Sequence[str], cwd: str | None, env: Mapping[str, str] | None, timeout: Seconds | None,
    uid: int | None, gid: int | None, stdin: str | None,
) -> dict[str, Any]:
    order: dict[str, Any] = {"command": command} if isinstance(command, str) else {"argv": list(command)}
    if not command:
        raise InvalidArgument("the command is empty", "give shell text, or a list of a program and its arguments")
    settings = {"cwd": cwd, "envs": dict(env) if env else None, "uid": uid, "gid": gid, "stdin": stdin,
                "timeout": None if timeout is None else milliseconds(timeout)}
    order.update((name, value) for name, value in settings.items() if value is not None)
    return order


class Commands:
    """The commands of a sandbox, by `sandbox.commands`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def run(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: Seconds | None = None, uid: int | None = None, gid: int | None = None, stdin: str | None = None,
        on_stdout: OnText | None = None, on_stderr: OnText | None = None,
    ) -> Output:
        """Runs a command to its end: shell text, or a list of a program and its arguments.

        `timeout` kills it after so many seconds. `on_stdout` and `on_stderr` are called with text as it
        comes. A command that fails is no exception: look at `exit_code`.
        """
        execution = self._start(_order(command, cwd, env, timeout, uid, gid, stdin))
        with execution:
            return execution.output(on_stdout, on_stderr)

    def start(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: Seconds | None = None, uid: int | None = None, gid: int | None = None, stdin: str | None = None,
        stdin_open: bool = False,
    ) -> Execution:
        """Starts a command and answers its events as they come. `stdin_open` keeps its input open for
        `write_stdin`."""
        order = _order(command, cwd, env, timeout, uid, gid, stdin)
        return self._start({**order, "stdin_open": True} if stdin_open else order)

    def background(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: Seconds | None = None, uid: int | None = None, gid: int | None = None, stdin: str | None = None,
        stdin_open: bool = False,
    ) -> str:
        """Starts a command that goes on by itself and answers its id."""
        order = {**_order(command, cwd, env, timeout, uid, gid, stdin), "background": True}
        execution = self._start({**order, "stdin_open": True} if stdin_open else order)
        with execution:
            output = execution.output()
        if output.error is not None:
            raise Failed("the command", "not started", output.error.value)
        if output.id is None:
            raise StreamBroken("a background command", "it ended without the command's id")
        return output.id

    def _start(self, order: dict[str, Any]) -> Execution:
        target = self._sandbox._exec()
        answer = target.send("POST", "/command", json=order)
        return Execution(answer, COMMAND, target)

    def follow(self, id: str, after: int = 0) -> Execution:
        """Follows a command, also one in the background, from the event after `after` on."""
        target = self._sandbox._exec()
        path = f"/command/{_http.segment(id)}/events"
        answer = target.send("GET", path, query=_http.query(("after", after)))
        execution = Execution(answer, COMMAND, target)
        execution.id = id
        execution._last_seq = after
        return execution

    def status(self, id: str) -> wire.CommandStatusResponse:
        """How a command is going."""
        target = self._sandbox._exec()
        found = target.json("GET", f"/command/status/{_http.segment(id)}")
        return wire.CommandStatusResponse.from_wire(found)

    def list(self) -> List[wire.CommandStatusResponse]:
        """The commands that the daemon still knows."""
        target = self._sandbox._exec()
        return [wire.CommandStatusResponse.from_wire(each) for each in target.json("GET", "/command")]

    def logs(self, id: str, cursor: int | None = None) -> Logs:
        """Output of a command from `cursor` on; without one from its beginning."""
        target = self._sandbox._exec()
        path = f"/command/{_http.segment(id)}/logs"
        answer = target.send("GET", path, query=_http.query(("cursor", cursor)))
        text = answer.read(target.transport.config.request_timeout)
        found = answer.headers.get("execd-commands-tail-cursor", "")
        return Logs(text.decode("utf-8", "replace"), int(found) if found.isdigit() else None)

    def interrupt(self, id: str) -> None:
        """Interrupts a command, or what runs in a session."""
        target = self._sandbox._exec()
        target.whole("DELETE", "/command", query=_http.query(("id", id)))

    def write_stdin(self, id: str, data: str | bytes, close: bool = False) -> int:
        """Writes to the input of a command that was started with `stdin_open`; `close` ends its input.
        Answers how many bytes it took."""
        target = self._sandbox._exec()
        body = data.encode() if isinstance(data, str) else data
        # A command that does not read holds its writer up for as long as it likes.
        answer = target.json("POST", f"/command/{_http.segment(id)}/stdin",
                                   query=_http.query(("close", close)), body=body, timeout=None)
        return int(answer["written"])

    def set_env(self, variables: Mapping[str, str]) -> None:
        """Makes variables part of the environment of every command from now on, by adding them to the
        file that the daemon reads."""
        lines = ""
        for name, value in variables.items():
            if not name or not name.replace("_", "a").isalnum() or not name.isascii() or "\n" in value:
                raise InvalidArgument(f"{name!r} cannot be kept",
                                      "a name has letters, digits and _, and a value is one line")
            lines += f"{name}={value}\n"
        file = "${EXECD_ENVS:-/opt/opensandbox/.env}"
        text = lines.replace("'", "'\\''")
        output = self.run(f"mkdir -p \"$(dirname \"{file}\")\" && printf %s '{text}' >> \"{file}\"")
        if not output.is_success:
            raise Failed(self._sandbox.id, "not able to keep variables", output.stderr)


class Sessions:
    """The live shells of a sandbox, by `sandbox.sessions`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def create(self, cwd: str | None = None) -> Session:
        """Starts a shell that keeps its variables, functions and directory between runs."""
        target = self._sandbox._exec()
        answer = target.json("POST", "/session", json={"cwd": cwd} if cwd else {})
        return self.get(answer["session_id"])

    def get(self, id: str) -> Session:
        """A session by its id, without any request."""
        return Session(self._sandbox, id)


class Session:
    """A live shell. Leaving its block ends it."""

    def __init__(self, sandbox: Sandbox, id: str) -> None:
        self.id = id
        self._sandbox = sandbox

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.delete()

    def run(
        self, command: str, *, cwd: str | None = None, timeout: Seconds | None = None,
        on_stdout: OnText | None = None, on_stderr: OnText | None = None,
    ) -> Output:
        """Runs shell text in it. `timeout` ends this run, not the session."""
        execution = self.start(command, cwd=cwd, timeout=timeout)
        with execution:
            return execution.output(on_stdout, on_stderr)

    def start(
        self, command: str, *, cwd: str | None = None, timeout: Seconds | None = None
    ) -> Execution:
        """Starts a run and answers its events as they come."""
        target = self._sandbox._exec()
        order = {"command": command, "cwd": cwd, "timeout": None if timeout is None else milliseconds(timeout)}
        order = {name: value for name, value in order.items() if value is not None}
        answer = target.send("POST", f"/session/{_http.segment(self.id)}/run", json=order)
        return Execution(answer, SESSION, target)

    def interrupt(self) -> None:
        """Interrupts what runs in it."""
        self._sandbox.commands.interrupt(self.id)

    def delete(self) -> None:
        """Ends it."""
        target = self._sandbox._exec()
        target.whole("DELETE", f"/session/{_http.segment(self.id)}")
