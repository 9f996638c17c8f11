"""Chromium with a screen in a sandbox of the image `opensandbox/chrome` (`make image NAME=browser`): where its debugger and
its live view are, and that both answer.

Prints:
    debugger: Chrome
    address: ends with /cdp
    live view: 200
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
        return ask(sandbox, 6080, "/desktop/still?quiet_ms=300&timeout_ms=20000").status_code == 200
    except httpx.HTTPError:
        return False


sandbox = SandboxSync.create(
    os.environ.get("SANDBOX_IMAGE", "opensandbox/chrome:latest"), entrypoint=["/entrypoint"],
    resource={"cpu": "2", "memory": "3Gi"}, health_check=is_ready, ready_timeout=timedelta(minutes=2),
    # People's browsers load scripts from these pages, which needs an origin of their own.
    extensions={"opensandbox.extensions.page-origin": "shared"},
    connection_config=ConnectionConfigSync(
        domain=os.environ.get("SANDBOX_DOMAIN"), api_key=os.environ.get("SANDBOX_API_KEY"), use_server_proxy=True))
try:
    version = ask(sandbox, 9222, "/json/version").json()
    print("debugger:", version["Browser"].partition("/")[0])
    # The address is stable: it stays the same when the browser is started again.
    print("address: ends with", "/" + version["webSocketDebuggerUrl"].rpartition("/")[2])
    print("live view:", ask(sandbox, 6080, "/vnc.html").status_code)
finally:
    sandbox.kill()
    sandbox.close()
