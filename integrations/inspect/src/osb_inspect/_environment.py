"""One sandbox as Inspect's `SandboxEnvironment`: commands, files, users, and the end of it."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass
from typing import Any

from inspect_ai.util import (
    ExecResult, OutputLimitExceededError, SandboxConnection, SandboxEnvironment, SandboxEnvironmentLimits, sandboxenv,
)
from inspect_ai.util import SandboxEnvironmentConfigType as Config
from osb import AsyncClient, AsyncSandbox, OsbError
from osb.posix import exit_status, has_timed_out, os_error
from osb.results import Output, Stderr, Stdout
from pydantic import BaseModel

from ._config import OsbSandboxConfig, read_config

# The label by which `inspect sandbox cleanup osb` finds what an evaluation left.
LABEL = {"framework": "inspect"}
# Input goes in pieces, so that a command that reads slowly holds back as little as a pipe would.
INPUT_PIECE_BYTES = 1 << 20
# Written in place: a file keeps its owner, rights and links, and one that may not be written is an error.
WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'


@dataclass(frozen=True)
class _User:
    uid: int
    gid: int
    home: str


@sandboxenv(name="osb")
class OsbSandboxEnvironment(SandboxEnvironment):
    """The sandbox of one sample."""

    def __init__(self, sandbox: AsyncSandbox, config: OsbSandboxConfig, workdir: str) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._config = config
        self._workdir = workdir

    @classmethod
    def config_files(cls) -> list[str]:
        return ["sandbox.toml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return OsbSandboxConfig(**config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Config | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        wanted = read_config(config)
        sandbox = await AsyncSandbox.create(
            wanted.image, lifetime=wanted.lifetime, env=wanted.env, metadata=LABEL,
            resources={"cpu": wanted.cpu, "memory": wanted.memory},
        )
        try:
            workdir = wanted.workdir or (await sandbox.commands.run(["pwd"])).stdout.rstrip("\n")
            environment = cls(sandbox, wanted, workdir)
            if wanted.workdir:
                await environment._prepare_workdir()
        except BaseException:
            await sandbox.kill()
            sandbox.close()
            raise
        return {"default": environment}

    async def _prepare_workdir(self) -> None:
        await self._sandbox.files.create_directories(self._workdir)
        if self._config.user is not None:
            made = await self._sandbox.commands.run(["chown", self._config.user, self._workdir])
            if not made.is_success:
                raise RuntimeError(f"{self._workdir} cannot be given to {self._config.user}: {made.stderr}")

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Config | None, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        for environment in environments.values():
            sandbox = environment.as_type(OsbSandboxEnvironment)._sandbox
            await sandbox.kill()
            sandbox.close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async with AsyncClient() as client:
            if id is not None:
                return await client.kill(id)
            for found in [found async for found in client.list_all(metadata=LABEL)]:
                await client.sandbox(found.id).kill()

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        return SandboxConnection(type="osb", command=f"osb shell {self._sandbox.id}", container=self._sandbox.id)

    async def exec(
        self, cmd: list[str], input: str | bytes | None = None, cwd: str | None = None,
        env: dict[str, str] | None = None, user: str | None = None, timeout: int | None = None,
        timeout_retry: bool = True, concurrency: bool = True,
    ) -> ExecResult[str]:
        wanted = user if user is not None else self._config.user
        who = None if wanted is None else await self._find_user(wanted)
        if wanted is not None and who is None:
            return ExecResult(False, 1, "", f"the sandbox has no user {wanted}\n")
        output = await self._run(
            cmd, input.encode() if isinstance(input, str) else input, env=self._environment(env, who), timeout=timeout,
            cwd=self._path(cwd or "."), **({} if who is None else {"uid": who.uid, "gid": who.gid}))
        if has_timed_out(output):
            raise TimeoutError(f"{cmd[0]} did not end within {timeout} s")
        status = exit_status(output)
        if output.exit_code is None and output.error is not None:
            # It never started.
            if "Permission denied" in output.error.value:
                raise PermissionError(f"Permission denied: {cmd[0]}")
            return ExecResult(False, status, output.stdout, output.stderr or f"{output.error.value}\n")
        return ExecResult(status == 0, status, output.stdout, output.stderr)

    def _environment(self, env: dict[str, str] | None, who: _User | None) -> dict[str, str] | None:
        home = {} if who is None else {"HOME": who.home}
        return {**home, **(env or {})} or None

    async def _run(self, cmd: list[str], input: bytes | None, **options: Any) -> Output:
        """Runs a command while its input is written, and stops reading where its output is too much."""
        output, limit, sizes = Output(), SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, {Stdout: 0, Stderr: 0}
        execution = await self._sandbox.commands.start(cmd, stdin_open=bool(input), **options)
        writing: asyncio.Task[None] | None = None
        try:
            async with execution:
                async for event in execution:
                    output.push(event)
                    if output.id is not None and input and writing is None:
                        writing = asyncio.create_task(self._write_input(output.id, input))
                    if isinstance(event, (Stdout, Stderr)):
                        sizes[type(event)] += len(event.text.encode())
                        if sizes[type(event)] > limit:
                            await self._sandbox.commands.interrupt(output.id or "")
                            raise OutputLimitExceededError(
                                SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, event.text)
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
        return output

    async def _write_input(self, id: str, data: bytes) -> None:
        for start in range(0, len(data), INPUT_PIECE_BYTES):
            piece = data[start:start + INPUT_PIECE_BYTES]
            await self._sandbox.commands.write_stdin(id, piece, close=start + INPUT_PIECE_BYTES >= len(data))

    async def _find_user(self, name: str) -> _User | None:
        """A user of the sandbox by name or number, as its /etc/passwd says now."""
        lines = (await self._sandbox.files.read_text("/etc/passwd")).splitlines()
        for fields in (line.split(":") for line in lines):
            if len(fields) >= 7 and name in (fields[0], fields[2]):
                return _User(int(fields[2]), int(fields[3]), fields[5])
        return _User(int(name), int(name), "/") if name.isdigit() else None

    def _path(self, file: str) -> str:
        return posixpath.normpath(posixpath.join(self._workdir, file))

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = self._path(file)
        written = await self.exec(["sh", "-c", WRITE, "sh", path], input=contents, env={"LC_ALL": "C"})
        if not written.success:
            raise os_error(OsbError(f"{path}: {written.stderr.strip()}"), path)

    async def read_file(self, file: str, text: bool = True) -> Any:
        path = self._path(file)
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        files = self._sandbox.files
        if self._config.user is not None and (who := await self._find_user(self._config.user)) is not None:
            files = files.as_user(who.uid, who.gid)
        try:
            data = bytearray()
            async with await files.download(path) as stream:
                async for piece in stream:
                    data += piece
                    if len(data) > limit:
                        raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        except OsbError as error:
            raise os_error(error, path) from error
        return bytes(data).decode() if text else bytes(data)
