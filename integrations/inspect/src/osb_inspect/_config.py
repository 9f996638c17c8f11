"""What a task may say about its sandbox, in Python or in a file of TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

# Samples may wait long for a model between two tool calls; what a crashed evaluation leaves ends by this.
LIFETIME_SECONDS = 2 * 60 * 60


class OsbSandboxConfig(BaseModel, frozen=True):
    """The sandbox of a sample. A field that there is not is refused, so that no wish is lost silently."""

    model_config = ConfigDict(extra="forbid")

    image: str = "host"
    user: str | None = None
    """Who commands run as and files are read and written as, unless a call says otherwise: a name or a number."""
    workdir: str | None = None
    """Where commands start and relative paths begin; the image's own directory when unset. Made if missing."""
    env: dict[str, str] = {}
    cpu: str = "1"
    memory: str = "2Gi"
    lifetime: int = LIFETIME_SECONDS


def read_config(given: Any) -> OsbSandboxConfig:
    """A configuration as a task gives it: none, a model, or the path of a file."""
    if given is None:
        return OsbSandboxConfig()
    if isinstance(given, OsbSandboxConfig):
        return given
    if isinstance(given, str):
        return OsbSandboxConfig(**tomllib.loads(Path(given).read_text()))
    raise TypeError(f"a sandbox of osb is described by OsbSandboxConfig or a file, not by {type(given).__name__}")
