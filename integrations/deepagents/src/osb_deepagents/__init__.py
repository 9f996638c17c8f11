"""A sandbox of an OSB server (or any OpenSandbox server) as the backend of a deep agent.

    with Sandbox.create("python:3.12") as sandbox:
        agent = create_deep_agent(model=model, backend=OsbSandbox(sandbox))

deepagents makes `ls`, `read`, `write`, `edit`, `grep` and `glob` out of commands that need `python3` or `python`, `grep` and a
shell in the image. The sandbox is the caller's: this neither makes nor ends it.
"""

from __future__ import annotations

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox
from osb import OsbError, Sandbox
from osb.posix import exit_status, has_timed_out, os_error

__all__ = ["OsbSandbox"]

# What a command may take that nothing was said about.
TIMEOUT_SECONDS = 30 * 60
# What of a command's output is kept; the rest is read and dropped, and the answer says so.
OUTPUT_CHARS_MAX = 10 * 1024 * 1024
# The status by which timeout(1) tells that time was over.
TIMED_OUT = 124
ERRORS: dict[type, str] = {
    FileNotFoundError: "file_not_found", PermissionError: "permission_denied", IsADirectoryError: "is_directory",
    NotADirectoryError: "invalid_path",
}


class OsbSandbox(BaseSandbox):
    """The backend. Its asynchronous methods are deepagents' own, on threads."""

    def __init__(self, sandbox: Sandbox, *, timeout: int = TIMEOUT_SECONDS) -> None:
        self._sandbox = sandbox
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self._sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        seconds = self._timeout if timeout is None else timeout
        kept: list[str] = []
        size = 0

        def keep(text: str) -> None:
            nonlocal size
            if size < OUTPUT_CHARS_MAX:
                kept.append(text[:OUTPUT_CHARS_MAX - size])
            size += len(text)

        # No time at all means as much as it takes.
        output = self._sandbox.commands.run(command, timeout=seconds or None, on_stdout=keep, on_stderr=keep)
        text = "".join(kept)
        if has_timed_out(output):
            return ExecuteResponse(f"{text}\nthe command did not end within {seconds} s", TIMED_OUT)
        if output.exit_code is None and output.error is not None:
            text += output.error.value
        return ExecuteResponse(text, exit_status(output), truncated=size > OUTPUT_CHARS_MAX)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self._sandbox.files.write(path, content)
        except OsbError as error:
            return _told(error, path)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self._sandbox.files.read(path))
        except OsbError as error:
            return FileDownloadResponse(path=path, error=_told(error, path))


def _told(error: OsbError, path: str) -> str:
    """The word that models know, or what happened."""
    return ERRORS.get(type(os_error(error, path)), str(error))
