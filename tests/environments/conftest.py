"""A real server on the embedded runtime, sandboxes of the images, and a Chromium outside them."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opensandbox.config import ConnectionConfigSync
from opensandbox.sync import SandboxManagerSync, SandboxSync

KEY = "a-key-for-tests"
# The server says READY=1 within this, and a sandbox is ready, also on a busy machine.
START_SECONDS_MAX = 60
HELPER, CHROMIUM, EDITOR = 6080, 9222, 8443


@pytest.fixture(scope="session")
def server():
    if os.geteuid() != 0:
        message = "these tests make real sandboxes and need root: sudo make test-environments"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    home = Path(tempfile.mkdtemp(prefix="osb-environments-"))
    config, log = home / "config.toml", home / "server.log"
    # It stays bound here and is never listened on, so that nobody else gets it; the server may bind
    # it all the same, because both ask for SO_REUSEADDR.
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    config.write_text(
        f'[server]\nhost = "127.0.0.1"\nport = {port}\napi_key = "{KEY}"\n'
        f'[embedded]\ndata_dir = "{os.environ["OSB_TEST_DATA"]}"\n[store]\npath = "{home}/osb.db"\n'
    )
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(home / "notify"))
    notify.settimeout(START_SECONDS_MAX)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [os.environ["OSB_BIN"], "server", "--config", config],
            env={**os.environ, "NOTIFY_SOCKET": str(home / "notify")},
            stdout=out, stderr=subprocess.STDOUT,
        )
    try:
        while b"READY=1" not in notify.recv(4096):
            pass
    except TimeoutError:
        process.kill()
        pytest.fail(f"the server did not become ready:\n{log.read_text()}")
    yield f"127.0.0.1:{port}"
    reserved.close()
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=START_SECONDS_MAX)
    print(log.read_text()[-4000:])
    shutil.rmtree(home, ignore_errors=True)
    assert code == 0, f"the server ended with {code}"


class Environment:
    """One sandbox, and what is behind its ports."""

    def __init__(self, server, image, entrypoint=("/entrypoint",), memory="3Gi", **options):
        self.server = server
        self.settings = ConnectionConfigSync(api_key=KEY, domain=server, request_timeout=timedelta(seconds=120))
        self.sandbox = SandboxSync.create(
            image, entrypoint=list(entrypoint), connection_config=self.settings,
            # The pages of these images load scripts and keep settings, which needs the shared origin.
            extensions={"opensandbox.extensions.page-origin": "shared"},
            resource={"cpu": "2", "memory": memory}, ready_timeout=timedelta(seconds=START_SECONDS_MAX), **options,
        )

    def endpoint(self, port):
        path = f"http://{self.server}/sandboxes/{self.sandbox.id}/endpoints/{port}?use_server_proxy=true"
        request = urllib.request.Request(path, headers={"OPEN-SANDBOX-API-KEY": KEY})
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = json.load(answer)
        address = found["endpoint"]
        address = address if "://" in address else f"http://{address}"
        return address.rstrip("/"), {**(found.get("headers") or {}), "OPEN-SANDBOX-API-KEY": KEY}

    def link(self, path, port=HELPER):
        """An address that a browser can open: the token is in it once and a cookie after that."""
        address, headers = self.endpoint(port)
        tokens = [value for name, value in headers.items() if name != "OPEN-SANDBOX-API-KEY"]
        return f"{address}/{path}{'&' if '?' in path else '?'}opensandbox_token={tokens[0]}"

    def ask(self, method, path, body=None, port=HELPER, **headers):
        """Status, headers and body of an answer."""
        address, ours = self.endpoint(port)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, data, {**ours, **headers}, method=method)
        if data is not None:
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def json(self, method, path, body=None, **options):
        status, _, text = self.ask(method, path, body, **options)
        assert 200 <= status < 300, (status, text)
        return json.loads(text) if text else None

    def ready(self, path="/desktop/still?quiet_ms=300&timeout_ms=20000", port=HELPER):
        """Asks until the entrypoint has started what answers; each answer is an event of its own."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            status, _, text = self.ask("GET", path, port=port)
            if status == 200:
                return self
            assert time.monotonic() < deadline, (status, text, self.logs())
            threading.Event().wait(0.05)

    def run(self, command):
        execution = self.sandbox.commands.run(command)
        return "".join(message.text for message in execution.logs.stdout)

    def logs(self):
        return self.run("cat /run/desktop/*.log 2>/dev/null | tail -40; ps ax | head -40")

    def snapshot(self):
        """A snapshot of the sandbox, once others can be made from it."""
        manager = SandboxManagerSync.create(connection_config=self.settings)
        begun = manager.create_snapshot(self.sandbox.id)
        deadline = time.monotonic() + START_SECONDS_MAX
        while (found := manager.get_snapshot(begun.id)).status.state != "Ready":
            assert time.monotonic() < deadline and found.status.state != "Failed", found
            threading.Event().wait(0.05)
        manager.close()
        return begun.id

    def delete_snapshot(self, id):
        manager = SandboxManagerSync.create(connection_config=self.settings)
        manager.delete_snapshot(id)
        manager.close()

    def close(self):
        self.sandbox.kill()
        self.sandbox.close()


@pytest.fixture(scope="session")
def browser_sandbox(server):
    environment = Environment(server, "opensandbox/browser:latest")
    yield environment.ready()
    environment.close()


@pytest.fixture(scope="session")
def second_chromium():
    """The path of a Chromium on this machine, which is the image's in a root of its own."""
    layers = Path(os.environ["OSB_TEST_LAYERS"])
    names = {json.loads(file.read_text())["name"]: file.parent / "fs" for file in layers.glob("*/layer.json")}
    home = Path(tempfile.mkdtemp(prefix="osb-chromium-"))
    wrapper = home / "chromium"
    for directory in ("upper", "work", "root"):
        (home / directory).mkdir()
    # The mounts go with the namespace of each start.
    wrapper.write_text(
        "#!/bin/sh\n"
        "exec unshare --mount --propagation private sh -c '"
        f"mount -t overlay -o lowerdir={names['graphics']}:{names['debian']},upperdir={home}/upper,workdir={home}/work "
        f"overlay {home}/root && cd {home}/root && mount --rbind /dev dev && mount --bind /proc proc && "
        "mount --bind /tmp tmp && exec chroot . chromium --no-sandbox \"$@\"' sh \"$@\"\n"
    )
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    yield str(wrapper)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def playwright():
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        yield playwright
