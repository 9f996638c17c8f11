"""One sandbox as a session: commands, files, and its workspace as an archive."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError, ExecTransportError, WorkspaceArchiveReadError, WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError, WorkspaceWriteTypeError,
)
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.types import ExecResult, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
from agents.sandbox.workspace_paths import sandbox_path_str
from osb import AsyncSandbox, OsbError
from osb.posix import exit_status, has_timed_out


class OsbSandboxSessionState(SandboxSessionState):
    """What finds a session's sandbox again, or makes another like it."""

    type: Literal["osb"] = "osb"
    sandbox_id: str
    image: str
    env: dict[str, str] = {}
    resources: dict[str, str] = {}
    lifetime: int


class OsbSandboxSession(BaseSandboxSession):
    """The session. Ending it deletes the sandbox."""

    state: OsbSandboxSessionState

    def __init__(self, state: OsbSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self._sandbox = sandbox

    async def start(self) -> None:
        await self._sandbox.files.create_directories(sandbox_path_str(self.state.manifest.root))
        await super().start()

    async def shutdown(self) -> None:
        await self._sandbox.kill()
        self._sandbox.close()

    async def running(self) -> bool:
        return await self._sandbox.is_healthy()

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in command]
        env = {**self.state.env, **await self.state.manifest.environment.resolve()}
        try:
            output = await self._sandbox.commands.run(
                words, cwd=sandbox_path_str(self.state.manifest.root), env=env or None, timeout=timeout)
        except OsbError as error:
            raise ExecTransportError(command=command, cause=error) from error
        if has_timed_out(output):
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        stderr = output.stderr
        if output.exit_code is None and output.error is not None:
            stderr += f"{output.error.value}\n"
        return ExecResult(stdout=output.stdout.encode(), stderr=stderr.encode(), exit_code=exit_status(output))

    async def read(self, path: Path | str, *, user: str | User | None = None) -> io.IOBase:
        if user is not None:
            place = await self._check_read_with_exec(path, user=user)
        else:
            place = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self._sandbox.files.read(sandbox_path_str(place)))
        except OsbError as error:
            if error.is_not_found:
                raise WorkspaceReadNotFoundError(path=Path(path), cause=error) from error
            raise WorkspaceArchiveReadError(path=Path(path), cause=error) from error

    async def write(self, path: Path | str, data: io.IOBase, *, user: str | User | None = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        payload = _bytes_of(data, Path(path))
        place = await self._validate_path_access(path, for_write=True)
        try:
            await self._sandbox.files.write(sandbox_path_str(place), payload)
        except OsbError as error:
            raise WorkspaceArchiveWriteError(path=place, cause=error) from error

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        skipped = {str(path) for path in self._persist_workspace_skip_relpaths()}
        packed = io.BytesIO()
        try:
            async with await self._sandbox.files.download_archive(sandbox_path_str(root)) as stream:
                whole = io.BytesIO(await stream.read())
        except OsbError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error
        with tarfile.open(fileobj=whole) as source, tarfile.open(fileobj=packed, mode="w") as target:
            for member in source:
                parts = Path(member.name).parts
                if not any("/".join(parts[:length]) in skipped for length in range(1, len(parts) + 1)):
                    target.addfile(member, source.extractfile(member) if member.isreg() else None)
        packed.seek(0)
        return packed

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        payload = _bytes_of(data, root)
        try:
            validate_tar_bytes(payload, allow_external_symlink_targets=False)
            await self._sandbox.files.upload_archive(sandbox_path_str(root), payload)
        except (UnsafeTarMemberError, OsbError) as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error


def _bytes_of(data: Any, path: Path) -> bytes:
    payload = data.read()
    if isinstance(payload, str):
        payload = payload.encode()
    if not isinstance(payload, (bytes, bytearray)):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(payload).__name__)
    return bytes(payload)
