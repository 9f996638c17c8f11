"""Sandboxes of an OSB server (or any OpenSandbox server) for the OpenAI Agents SDK.

    run_config = RunConfig(sandbox=SandboxRunConfig(client=OsbSandboxClient(), options=OsbSandboxClientOptions(image="python:3.12")))

The server is found as the SDK finds it: OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY, or the file that `osb` writes.
Mounts of a manifest and exposed ports are refused: a port of a sandbox has an address with a path, which
`ExposedPortEndpoint` cannot hold.
"""

from ._client import OsbSandboxClient, OsbSandboxClientOptions
from ._computer import OsbComputer
from ._session import OsbSandboxSession, OsbSandboxSessionState

__all__ = ["OsbComputer", "OsbSandboxClient", "OsbSandboxClientOptions", "OsbSandboxSession", "OsbSandboxSessionState"]
