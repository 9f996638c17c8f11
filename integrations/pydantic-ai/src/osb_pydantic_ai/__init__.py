"""A sandbox of an OSB server (or any OpenSandbox server) as a workspace of Pydantic AI.

    workspace = Workspace(OsbWorkspace("python:3.12"))

The sandbox is made by the first operation, or found by the `ref` of an earlier one, and belongs to whoever holds the
ref: nothing here ends it but its lifetime. Files are reached by commands, as Pydantic AI does where a backend
says nothing of files, so that links, rights and errors are those of the sandbox.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from typing import Any

from osb import AsyncClient, AsyncSandbox, OsbError
from osb.posix import exit_status, has_timed_out
from osb.results import Output
from pydantic_ai.workspaces import (
    CommandResult, WorkspaceCommand, WorkspaceRef, WorkspaceTimeoutError, WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import validate_timeout

__all__ = ["OsbWorkspace"]

PROVIDER = "osb"
# How long a workspace lives that nothing was said about; a run may be taken up again by its ref.
LIFETIME_SECONDS = 60 * 60


class OsbWorkspace:
    """The backend. `options` are those of `AsyncSandbox.create`; without a `client`, one from the environment."""

    def __init__(
        self, image: str | None = None, *, ref: WorkspaceRef | None = None, working_dir: str | None = None,
        client: AsyncClient | None = None, **options: Any,
    ) -> None:
        if (image is None) == (ref is None):
            raise ValueError("a workspace is made from an image or found by its ref: give one of them")
        self._image = image
        self._ref = ref
        self._wanted_dir = working_dir
        self._client = client
        self._options = {"lifetime": LIFETIME_SECONDS, **options}
        self._sandbox: AsyncSandbox | None = None
        self._directory: str | None = None
        self._opening: asyncio.Task[AsyncSandbox] | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def working_dir(self) -> str:
        sandbox = await self._open()
        if self._directory is None:
            told = await self._command(sandbox, ["sh", "-c", "pwd -P"], self._wanted_dir, None, None)
            if not told.is_success:
                raise WorkspaceUnavailableError(f"{self._wanted_dir} is no directory: {told.stderr}")
            self._directory = posixpath.normpath(told.stdout.rstrip("\n"))
        return self._directory

    async def run(
        self, command: WorkspaceCommand, *, shell: bool = False, env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("a string needs shell=True, and a list of arguments shell=False")
        validate_timeout(timeout)
        sandbox, directory = await self._open(), await self.working_dir()
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        output = await self._command(sandbox, words, directory, env, timeout)
        if has_timed_out(output):
            raise WorkspaceTimeoutError(
                f"the command did not end within {timeout} s", stdout=output.stdout, stderr=output.stderr)
        stderr = output.stderr
        if output.exit_code is None and output.error is not None:
            stderr += f"{output.error.value}\n"
        return CommandResult(exit_code=exit_status(output), stdout=output.stdout, stderr=stderr)

    async def _command(
        self, sandbox: AsyncSandbox, words: list[str], directory: str | None, env: Mapping[str, str] | None,
        timeout: float | None,
    ) -> Output:
        """Runs to the end. Whoever stops waiting ends the command; a sandbox that is gone is told as such."""
        output = Output()
        try:
            execution = await sandbox.commands.start(words, cwd=directory, env=env, timeout=timeout)
            async with execution:
                async for event in execution:
                    output.push(event)
        except asyncio.CancelledError:
            if output.id is not None:
                await asyncio.shield(_interrupt(sandbox, output.id))
            raise
        except OsbError as error:
            if await self._is_gone(sandbox):
                raise WorkspaceUnavailableError(f"sandbox {sandbox.id} is gone") from error
            raise
        if output.ending.signal == "killed" and not has_timed_out(output) and await self._is_gone(sandbox):
            raise WorkspaceUnavailableError(f"sandbox {sandbox.id} went away while the command ran")
        return output

    async def _open(self) -> AsyncSandbox:
        """The sandbox, made once however many ask at once; a caller that leaves does not stop its making."""
        if self._sandbox is None:
            if self._opening is None:
                self._opening = asyncio.ensure_future(self._make() if self._ref is None else self._find(self._ref))
            opening = self._opening
            try:
                self._sandbox = await asyncio.shield(opening)
            finally:
                if opening.done():
                    self._opening = None
        return self._sandbox

    async def _make(self) -> AsyncSandbox:
        sandbox = await AsyncSandbox.create(self._image, client=self._client, **self._options)
        sandbox.keep()
        self._ref = WorkspaceRef(provider=PROVIDER, id=sandbox.id)
        return sandbox

    async def _find(self, ref: WorkspaceRef) -> AsyncSandbox:
        try:
            return await AsyncSandbox.connect(ref.id, client=self._client)
        except OsbError as error:
            if error.is_not_found:
                raise WorkspaceUnavailableError(f"sandbox {ref.id} is gone") from error
            raise

    async def _is_gone(self, sandbox: AsyncSandbox) -> bool:
        try:
            return (await sandbox.info()).status.state in ("Stopping", "Terminated", "Failed")
        except OsbError as error:
            return error.is_not_found


async def _interrupt(sandbox: AsyncSandbox, id: str) -> None:
    try:
        await sandbox.commands.interrupt(id)
    except OsbError as error:
        # It ended by itself, or its sandbox did.
        if not error.is_not_found:
            raise
