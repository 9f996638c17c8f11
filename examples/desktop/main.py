"""An Xfce desktop in a sandbox of the image `opensandbox/desktop` (`make image NAME=desktop`): its size, an editor opened by
a command and typed into from outside, and a picture of it.

Prints:
    screen: 1280 x 800
    editor: Mousepad
    picture: image/png
"""

import os
import time
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
    os.environ.get("SANDBOX_IMAGE", "opensandbox/desktop:latest"), entrypoint=["/entrypoint"],
    resource={"cpu": "2", "memory": "3Gi"}, health_check=is_ready, ready_timeout=timedelta(minutes=2),
    # People's browsers load scripts from these pages, which needs an origin of their own.
    extensions={"opensandbox.extensions.page-origin": "shared"},
    connection_config=ConnectionConfigSync(
        domain=os.environ.get("SANDBOX_DOMAIN"), api_key=os.environ.get("SANDBOX_API_KEY"), use_server_proxy=True))


def act(sandbox, *actions):
    endpoint = sandbox.get_endpoint(6080)
    answer = httpx.post(f"http://{endpoint.endpoint}/desktop/actions", headers=endpoint.headers or {}, timeout=60,
                        json={"actions": list(actions), "picture": 0, "then": {"still": {}, "max_edge": 640}})
    answer.raise_for_status()


try:
    screen = ask(sandbox, 6080, "/desktop").json()
    print("screen:", screen["width"], "x", screen["height"])
    sandbox.commands.run("setpriv --reuid=user --regid=user --init-groups env HOME=/home/user mousepad >/dev/null 2>&1 &")
    opened, deadline = [], time.monotonic() + 60
    while not opened:
        if time.monotonic() > deadline:
            raise SystemExit("the editor did not open within a minute")
        ask(sandbox, 6080, "/desktop/still?quiet_ms=200&timeout_ms=2000")
        windows = ask(sandbox, 6080, "/desktop/windows").json()["windows"]
        opened = [window for window in windows if window["class"] == "Mousepad"]
    print("editor:", opened[0]["class"])
    act(sandbox, {"type": "type", "text": "typed from outside"})
    print("picture:", ask(sandbox, 6080, "/desktop/screenshot").headers["content-type"])
finally:
    sandbox.kill()
    sandbox.close()
