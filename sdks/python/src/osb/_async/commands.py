"""Commands in a sandbox: to the end, as a stream, or in the background; and live shells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

from .. import _http, wire
from .._durations import Seconds, milliseconds
from ..errors import Failed, InvalidArgument, StreamBroken
from ..results import Logs, Output
from .execution import COMMAND, SESSION, AsyncExecution, OnText

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


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


class AsyncCommands:
    """The commands of a sandbox, by `sandbox.commands`."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def run(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: Seconds | None = None, uid: int | None = None, gid: int | None = None, stdin: str | None = None,
        on_stdout: OnText | None = None, on_stderr: OnText | None = None,
    ) -> Output:
        """Runs a command to its end: shell text, or a list of a program and its arguments.

        `timeout` kills it after so many seconds. `on_stdout` and `on_stderr` are called with text as it
        comes. A command that fails is no exception: look at `exit_code`.
        """
        execution = await self._start(_order(command, cwd, env, timeout, uid, gid, stdin))
        async with execution:
            return await execution.output(on_stdout, on_stderr)

    async def start(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: Seconds | None = None, uid: int | None = None, gid: int | None = None, stdin: str | None = None,
        stdin_open: bool = False,
    ) -> AsyncExecution:
        """Starts a command and answers its events as they come. `stdin_open` keeps its input open for
        `write_stdin`."""
        order = _order(command, cwd, env, timeout, uid, gid, stdin)
        return await self._start({**order, "stdin_open": True} if stdin_open else order)

    async def background(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        timeout: Seconds | None = None, uid: int | None = None, gid: int | None = None, stdin: str | None = None,
        stdin_open: bool = False,
    ) -> str:
        """Starts a command that goes on by itself and answers its id."""
        order = {**_order(command, cwd, env, timeout, uid, gid, stdin), "background": True}
        execution = await self._start({**order, "stdin_open": True} if stdin_open else order)
        async with execution:
            output = await execution.output()
        if output.error is not None:
            raise Failed("the command", "not started", output.error.value)
        if output.id is None:
            raise StreamBroken("a background command", "it ended without the command's id")
        return output.id

    async def _start(self, order: dict[str, Any]) -> AsyncExecution:
        target = await self._sandbox._exec()
        answer = await target.send("POST", "/command", json=order)
        return AsyncExecution(answer, COMMAND, target)

    async def follow(self, id: str, after: int = 0) -> AsyncExecution:
        """Follows a command, also one in the background, from the event after `after` on."""
        target = await self._sandbox._exec()
        path = f"/command/{_http.segment(id)}/events"
        answer = await target.send("GET", path, query=_http.query(("after", after)))
        execution = AsyncExecution(answer, COMMAND, target)
        execution.id = id
        execution._last_seq = after
        return execution

    async def status(self, id: str) -> wire.CommandStatusResponse:
        """How a command is going."""
        target = await self._sandbox._exec()
        found = await target.json("GET", f"/command/status/{_http.segment(id)}")
        return wire.CommandStatusResponse.from_wire(found)

    async def list(self) -> List[wire.CommandStatusResponse]:
        """The commands that the daemon still knows."""
        target = await self._sandbox._exec()
        return [wire.CommandStatusResponse.from_wire(each) for each in await target.json("GET", "/command")]

    async def logs(self, id: str, cursor: int | None = None) -> Logs:
        """Output of a command from `cursor` on; without one from its beginning."""
        target = await self._sandbox._exec()
        path = f"/command/{_http.segment(id)}/logs"
        answer = await target.send("GET", path, query=_http.query(("cursor", cursor)))
        text = await answer.read(target.transport.config.request_timeout)
        found = answer.headers.get("execd-commands-tail-cursor", "")
        return Logs(text.decode("utf-8", "replace"), int(found) if found.isdigit() else None)

    async def interrupt(self, id: str) -> None:
        """Interrupts a command, or what runs in a session."""
        target = await self._sandbox._exec()
        await target.whole("DELETE", "/command", query=_http.query(("id", id)))

    async def write_stdin(self, id: str, data: str | bytes, close: bool = False) -> int:
        """Writes to the input of a command that was started with `stdin_open`; `close` ends its input.
        Answers how many bytes it took."""
        target = await self._sandbox._exec()
        body = data.encode() if isinstance(data, str) else data
        # A command that does not read holds its writer up for as long as it likes.
        answer = await target.json("POST", f"/command/{_http.segment(id)}/stdin",
                                   query=_http.query(("close", close)), body=body, timeout=None)
        return int(answer["written"])

    async def set_env(self, variables: Mapping[str, str]) -> None:
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
        output = await self.run(f"mkdir -p \"$(dirname \"{file}\")\" && printf %s '{text}' >> \"{file}\"")
        if not output.is_success:
            raise Failed(self._sandbox.id, "not able to keep variables", output.stderr)


class AsyncSessions:
    """The live shells of a sandbox, by `sandbox.sessions`."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def create(self, cwd: str | None = None) -> AsyncSession:
        """Starts a shell that keeps its variables, functions and directory between runs."""
        target = await self._sandbox._exec()
        answer = await target.json("POST", "/session", json={"cwd": cwd} if cwd else {})
        return self.get(answer["session_id"])

    def get(self, id: str) -> AsyncSession:
        """A session by its id, without any request."""
        return AsyncSession(self._sandbox, id)


class AsyncSession:
    """A live shell. Leaving its block ends it."""

    def __init__(self, sandbox: AsyncSandbox, id: str) -> None:
        self.id = id
        self._sandbox = sandbox

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.delete()

    async def run(
        self, command: str, *, cwd: str | None = None, timeout: Seconds | None = None,
        on_stdout: OnText | None = None, on_stderr: OnText | None = None,
    ) -> Output:
        """Runs shell text in it. `timeout` ends this run, not the session."""
        execution = await self.start(command, cwd=cwd, timeout=timeout)
        async with execution:
            return await execution.output(on_stdout, on_stderr)

    async def start(
        self, command: str, *, cwd: str | None = None, timeout: Seconds | None = None
    ) -> AsyncExecution:
        """Starts a run and answers its events as they come."""
        target = await self._sandbox._exec()
        order = {"command": command, "cwd": cwd, "timeout": None if timeout is None else milliseconds(timeout)}
        order = {name: value for name, value in order.items() if value is not None}
        answer = await target.send("POST", f"/session/{_http.segment(self.id)}/run", json=order)
        return AsyncExecution(answer, SESSION, target)

    async def interrupt(self) -> None:
        """Interrupts what runs in it."""
        await self._sandbox.commands.interrupt(self.id)

    async def delete(self) -> None:
        """Ends it."""
        target = await self._sandbox._exec()
        await target.whole("DELETE", f"/session/{_http.segment(self.id)}")
