"""SIGTERM while a command streams: a published SDK is told by an error event, ours go on where they were.

The grace period is longer than the tests wait, so a stream that only its end would close fails them.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from conftest import API_KEY, BACKEND, OSB, REPO, START_SECONDS_MAX, Client, delete_all, done, free_port

pytestmark = pytest.mark.skipif("BACKEND != 'embedded'", reason="the proxy is the same on every backend")
LINES = 200_000


class Restarted:
    """A server that can be stopped and started again at the same address."""

    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="osb-stop-"))
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.config = self.home / "config.toml"
        self.config.write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\napi_key = "{API_KEY}"\n'
            f'timeout_graceful_shutdown = {10 * START_SECONDS_MAX}\n[runtime]\ntype = "embedded"\n'
            f'[embedded]\ndata_dir = "{self.home}/data"\n[store]\npath = "{self.home}/osb.db"\n'
        )
        self.log = self.home / "server.log"
        self.start()

    def start(self):
        path = self.home / "notify"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, self.log.open("ab") as log:
            notify.bind(str(path))
            notify.settimeout(START_SECONDS_MAX)
            self.process = subprocess.Popen(
                [OSB, "server", "--config", self.config],
                env={**os.environ, "NOTIFY_SOCKET": str(path)}, stdout=log, stderr=subprocess.STDOUT,
            )
            while b"READY=1" not in notify.recv(4096):
                pass

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(START_SECONDS_MAX) == 0

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.start()
        delete_all(self.port)
        self.stop()
        print(self.log.read_text()[-4000:])
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture
def restarted():
    server = Restarted()
    yield server
    server.end()


@pytest.mark.parametrize("flavour", ["async", "sync"])
async def test_a_published_sdk_is_told_that_the_server_stops(restarted, flavour):
    from opensandbox.models.execd import ExecutionHandlers
    from opensandbox.models.execd_sync import ExecutionHandlersSync

    client = Client(flavour, restarted, use_server_proxy=True)
    sandbox = await client.create()

    async def stop_async(message):
        restarted.process.send_signal(signal.SIGTERM)

    def stop_sync(message):
        restarted.process.send_signal(signal.SIGTERM)

    handlers = (
        ExecutionHandlers(on_stdout=stop_async) if flavour == "async" else ExecutionHandlersSync(on_stdout=stop_sync)
    )
    execution = await done(sandbox.commands.run("echo begun; exec sleep 600", handlers=handlers))
    assert [message.text.strip() for message in execution.logs.stdout] == ["begun"]
    assert execution.error.name == "ServerStopping"
    assert f"/command/{{id}}/events" in execution.error.value
    assert getattr(execution, "exit_code", None) is None
    assert restarted.process.wait(START_SECONDS_MAX) == 0

    # What was started goes on.
    restarted.start()
    status = await done(sandbox.commands.get_command_status(execution.id))
    assert status.running
    await done(sandbox.close())


# Prints many lines, waits until it is told to go on, and prints as many again.
COMMAND = f"mkfifo /tmp/go; seq {LINES}; read go </tmp/go; seq {LINES + 1} {2 * LINES}; exit 3"

OURS = f"""
import sys
from osb import Sandbox
sandbox = Sandbox.connect(sys.argv[1])
output = sandbox.commands.run({COMMAND!r}, on_stdout=lambda text: print(text, end="", flush=True))
sys.exit(output.exit_code)
"""


@pytest.mark.parametrize("sdk", ["python", "rust"])
def test_our_sdks_lose_no_line_over_a_restart(restarted, sdk):
    environment = {
        **os.environ, "OPEN_SANDBOX_DOMAIN": restarted.address, "OPEN_SANDBOX_API_KEY": API_KEY,
        "PYTHONPATH": str(REPO / "sdks/python/src"),
    }
    made = subprocess.run(
        [OSB, "run", "-d", "host"], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    sandbox = made.stdout.strip()
    followed = {
        "python": [sys.executable, "-c", OURS, sandbox],
        "rust": [OSB, "exec", sandbox, "--", "sh", "-c", COMMAND],
    }[sdk]
    with subprocess.Popen(followed, env=environment, stdout=subprocess.PIPE, text=True) as process:
        deadline = threading.Timer(START_SECONDS_MAX, process.kill)
        deadline.start()
        lines = [process.stdout.readline()]
        restarted.stop()
        restarted.start()
        subprocess.run([OSB, "exec", sandbox, "--", "sh", "-c", "echo >/tmp/go"], env=environment, check=True)
        lines += process.stdout.readlines()
        deadline.cancel()
        assert process.wait() == 3
    assert [int(line) for line in lines] == list(range(1, 2 * LINES + 1))
