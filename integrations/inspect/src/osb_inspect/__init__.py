"""Sandboxes of an OSB server (or any OpenSandbox server) as sandbox environments of Inspect, by the name `osb`.

    inspect eval task.py --sandbox osb:sandbox.toml

The server is found as the SDK finds it: OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY, or the file that `osb` writes.
One sandbox is made for every sample and ended with it. Compose files, and with them several sandboxes for one
sample, are not read.
"""

from ._config import OsbSandboxConfig
from ._environment import OsbSandboxEnvironment

__all__ = ["OsbSandboxConfig", "OsbSandboxEnvironment"]
