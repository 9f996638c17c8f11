"""A sandbox of an OSB server (or any OpenSandbox server) as the Python executor of smolagents.

    with OsbExecutor("opensandbox/code-interpreter") as executor:
        CodeAgent(tools=[], model=model, executor=executor).run("...")

Code runs in one context of Python, which remembers, until the executor is left. Tools are sent as their source, as to
every remote executor of smolagents.
"""

from __future__ import annotations

import io
from typing import Any, Sequence

import PIL.Image
from osb import Client, Figure, OsbError, Sandbox
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

__all__ = ["OsbExecutor"]

# How long an executor's sandbox lives that nobody ends.
LIFETIME_SECONDS = 60 * 60
# What installing packages may take.
INSTALL_SECONDS = 10 * 60


class OsbExecutor(RemotePythonExecutor):
    """The executor. `options` are those of `Sandbox.create`; `timeout` is what one piece of code may take."""

    def __init__(
        self, image: str, additional_imports: Sequence[str] = (), logger: AgentLogger | None = None,
        allow_pickle: bool = False, *, timeout: float | None = None, client: Client | None = None, **options: Any,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.ERROR), allow_pickle)
        self._timeout = timeout
        self._sandbox: Sandbox | None = Sandbox.create(
            image, client=client, **{"lifetime": LIFETIME_SECONDS, "metadata": {"framework": "smolagents"}, **options})
        try:
            self._context = self._sandbox.code.create_context("python")
            self.installed_packages = self._install(self.additional_imports)
        except BaseException:
            self.cleanup()
            raise

    def __enter__(self) -> OsbExecutor:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.cleanup()

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs what tools ask for. The image may have it by other means than pip, so what pip cannot install is only
        said: code that imports it in vain fails where it does."""
        try:
            return self._install(additional_imports)
        except AgentError:
            return []

    def _install(self, packages: list[str]) -> list[str]:
        if packages:
            done = self._alive().commands.run(
                ["python3", "-m", "pip", "install", *packages], timeout=INSTALL_SECONDS,
                # The sandbox is nobody's system.
                env={"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
            self.logger.log(done.stdout)
            if not done.is_success:
                raise AgentError(f"pip could not install {' '.join(packages)}: {done.stderr}", self.logger)
        return packages

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        try:
            done = self._alive().code.run(code, context=self._context.id, timeout=self._timeout)
        except OsbError as error:
            raise AgentError(f"the sandbox could not run the code: {error}", self.logger) from error
        logs = done.stdout + done.stderr
        if done.error is not None:
            if done.error.name == self.FINAL_ANSWER_EXCEPTION:
                answer = self._deserialize_final_answer(done.error.value, self.allow_pickle)
                return CodeOutput(output=answer, logs=logs, is_final_answer=True)
            trace = "\n".join(done.error.traceback)
            raise AgentError(
                f"{logs}\nExecuting code yielded an error:\n{done.error.name}: {done.error.value}\n{trace}", self.logger)
        for result in done.results:
            if isinstance(result, Figure) and result.media_type != "image/svg+xml":
                return CodeOutput(output=PIL.Image.open(io.BytesIO(result.data)), logs=logs, is_final_answer=False)
        return CodeOutput(output=done.text, logs=logs, is_final_answer=False)

    def cleanup(self) -> None:
        """Ends the sandbox."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.kill()
            sandbox.close()

    def _alive(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("this executor was cleaned up; make another")
        return self._sandbox
