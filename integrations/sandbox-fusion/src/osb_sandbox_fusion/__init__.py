"""SandboxFusion's `POST /run_code` on OSB sandboxes: each request runs in a sandbox of its own."""

from .languages import LANGUAGES
from .running import Runner
from .serving import serve

__all__ = ["LANGUAGES", "Runner", "serve"]
