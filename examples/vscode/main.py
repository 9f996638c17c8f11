"""code-server in a sandbox of the image `opensandbox/vscode` (`make image NAME=vscode`): an editor in the browser, behind the
sandbox's endpoint.

Prints:
    editor: alive
    page: code-server
"""

import os
from datetime import timedelta

import httpx
from opensandbox.config import ConnectionConfigSync
from opensandbox.sync import SandboxSync


def ask(sandbox, port, path):
    """An answer of a port of the sandbox, through the server."""
    endpoint = sandbox.get_endpoint(port)
    return httpx.get(f"http://{endpoint.endpoint}{path}", headers=endpoint.headers or {}, timeout=60)


def is_ready(sandbox):
    try:
        return ask(sandbox, 8443, "/healthz").status_code == 200
    except httpx.HTTPError:
        return False


sandbox = SandboxSync.create(
    os.environ.get("SANDBOX_IMAGE", "opensandbox/vscode:latest"), entrypoint=["/entrypoint"],
    resource={"cpu": "2", "memory": "3Gi"}, health_check=is_ready, ready_timeout=timedelta(minutes=2),
    # People's browsers load scripts from these pages, which needs an origin of their own.
    extensions={"opensandbox.extensions.page-origin": "shared"},
    connection_config=ConnectionConfigSync(
        domain=os.environ.get("SANDBOX_DOMAIN"), api_key=os.environ.get("SANDBOX_API_KEY"), use_server_proxy=True))
try:
    # "expired" is what it says before the first page was opened.
    print("editor:", "alive" if ask(sandbox, 8443, "/healthz").json()["status"] in ("alive", "expired") else "not ready")
    page = ask(sandbox, 8443, "/?folder=/workspace")
    print("page:", "code-server" if "code-server" in page.text else page.text[:200])
finally:
    sandbox.kill()
    sandbox.close()
