"""A sandbox of an OSB server (or any OpenSandbox server) as the environment of mini-swe-agent.

    mini --environment-class osb_mini_swe_agent.OsbEnvironment ...

Its settings have the names of the environment `docker`. One sandbox is made for each environment and ended with it.
"""

from __future__ import annotations

import os
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from osb import OsbError, Sandbox
from osb.posix import exit_status, has_timed_out
from pydantic import BaseModel, ConfigDict

__all__ = ["OsbEnvironment", "OsbEnvironmentConfig"]

# What an agent prints first when it is done.
SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class OsbEnvironmentConfig(BaseModel):
    """What may be said; a name that there is not is refused."""

    model_config = ConfigDict(extra="forbid")

    image: str
    cwd: str = "/"
    env: dict[str, str] = {}
    forward_env: list[str] = []
    """Variables of this machine that commands see, where they are set; `env` is over them."""
    timeout: int = 30
    """What one command may take, in seconds."""
    lifetime: int = 2 * 60 * 60
    """What an environment lives that nobody ends, in seconds."""
    resources: dict[str, str] = {"cpu": "1", "memory": "2Gi"}
    interpreter: list[str] = ["bash", "-lc"]


class OsbEnvironment:
    """The environment."""

    def __init__(self, *, config_class: type = OsbEnvironmentConfig, **given: Any) -> None:
        self.config = config_class(**given)
        self._sandbox: Sandbox | None = Sandbox.create(
            self.config.image, lifetime=self.config.lifetime, resources=self.config.resources,
            metadata={"framework": "mini-swe-agent"})

    def get_template_vars(self, **given: Any) -> dict[str, Any]:
        # What prompts say of the machine is what is true inside.
        names = ["system", "node", "release", "version", "machine"]
        words = ["sh", "-c", "for each in s n r v m; do uname -$each; done"]
        told = self._alive().commands.run(words).stdout.splitlines()
        return recursive_merge(self.config.model_dump(), dict(zip(names, told)), given)

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {
            "environment": self.config.model_dump(mode="json"), "environment_type": kind}}}

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Runs a command; the output has both streams in the order in which they came."""
        seconds = timeout or self.config.timeout
        forwarded = {name: os.environ[name] for name in self.config.forward_env if name in os.environ}
        said: list[str] = []
        try:
            output = self._alive().commands.run(
                [*self.config.interpreter, action.get("command", "")], cwd=cwd or self.config.cwd, timeout=seconds,
                env={**forwarded, **self.config.env}, on_stdout=said.append, on_stderr=said.append)
        except OsbError as error:
            return _failed("".join(said), error)
        text = "".join(said)
        if has_timed_out(output):
            return _failed(text, TimeoutError(f"the command did not end within {seconds} s"))
        if output.exit_code is None and output.error is not None:
            return _failed(text, RuntimeError(output.error.value))
        result = {"output": text, "returncode": exit_status(output), "exception_info": ""}
        lines = text.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == SUBMITTED and result["returncode"] == 0:
            submission = "".join(lines[1:])
            raise Submitted({"role": "exit", "content": submission,
                             "extra": {"exit_status": "Submitted", "submission": submission}})
        return result

    def cleanup(self) -> None:
        """Ends the sandbox."""
        sandbox, self._sandbox = getattr(self, "_sandbox", None), None
        if sandbox is not None:
            sandbox.kill()
            sandbox.close()

    def __del__(self) -> None:
        try:
            self.cleanup()
        except OsbError:
            # Nobody is there to hear of it, and its lifetime ends the sandbox.
            pass

    def _alive(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("this environment was cleaned up; make another")
        return self._sandbox


def _failed(said: str, error: Exception) -> dict[str, Any]:
    return {"output": said, "returncode": -1, "exception_info": f"An error occurred while executing the command: {error}",
            "extra": {"exception_type": type(error).__name__, "exception": str(error)}}
