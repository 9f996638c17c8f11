"""A real execd for the published SDKs, and the SDKs pointed at it.

execd runs as an ordinary process or, with EXECD_MODE=pid1, as the init of a pid namespace of its
own. Every test runs twice, for the asynchronous and the synchronous SDK: `done` waits where there
is something to wait for. Which SDK methods were called is recorded, and `test_every_method` fails
if one was not.
"""

import inspect
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
from lifecycle import Lifecycle

EXECD = os.environ["EXECD_BIN"]
MODE = os.environ.get("EXECD_MODE", "process")
TOKEN = "a-token-for-tests"
TOKEN_HEADER = "X-EXECD-ACCESS-TOKEN"
SDK = version("opensandbox")
# From start to the first answer; execd needs milliseconds, a busy machine more.
START_SECONDS_MAX = 30

only_1_1 = pytest.mark.skipif(
    SDK.startswith("0."), reason=f"SDK {SDK} does not have what this tests; it came with 1.x"
)


def pytest_configure(config):
    if os.geteuid() != 0:
        message = "this suite changes owners and users and needs root: run it with sudo"
        if os.environ.get("CI") == "true":
            pytest.exit(message, returncode=1)
        print(f"LOUD: {message}; the tests that need it will fail")


async def done(value):
    """The value, or what awaiting it gives."""
    return await value if inspect.isawaitable(value) else value


async def collected(stream):
    """All chunks of a stream of either kind."""
    if hasattr(stream, "__aiter__"):
        return [chunk async for chunk in stream]
    return list(stream)


def text(messages):
    """The output that events stand for. 1.1.1 gets it with its line ends and may get a line in
    pieces; 0.1.10 gets whole lines without their end, and a blank line as "\\n"."""
    if SDK.startswith("0."):
        return "".join(m.text if m.text.endswith("\n") else m.text + "\n" for m in messages)
    return "".join(m.text for m in messages)


RESERVED = []


def free_port():
    """A port that nobody else gets: it stays bound here and is never listened on. The program under
    test may bind it all the same, because both ask for SO_REUSEADDR."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    RESERVED.append(probe)
    return probe.getsockname()[1]


class Execd:
    def __init__(self, home):
        self.port = free_port()
        self.envs = home / "envs"
        self.log = home / "log"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(home / "execd.sock"))
        listener.listen()
        token = os.memfd_create("token", 0)
        os.write(token, TOKEN.encode())
        os.lseek(token, 0, os.SEEK_SET)
        command = [EXECD, "--listen-fd", str(listener.fileno()), "--token-fd", str(token), "--port", str(self.port)]
        if MODE == "pid1":
            command = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *command, "--init"]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                command, pass_fds=[listener.fileno(), token], stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, "EXECD_ENVS": str(self.envs)}, cwd=home, start_new_session=True,
            )
        os.close(token)
        listener.close()
        self.wait_for_first_answer(home / "execd.sock")

    def wait_for_first_answer(self, path):
        """The socket listens before execd runs, so the first request waits in its queue."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(START_SECONDS_MAX)
            client.connect(str(path))
            client.sendall(f"GET /ping HTTP/1.1\r\nHost: x\r\n{TOKEN_HEADER}: {TOKEN}\r\n\r\n".encode())
            answer = client.recv(4096)
        assert answer.startswith(b"HTTP/1.1 200"), (answer, self.log.read_text())

    def end(self):
        if MODE == "pid1":
            # To the init itself: unshare does not pass signals on.
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGTERM)
        else:
            self.process.terminate()
        return self.process.wait(timeout=START_SECONDS_MAX)


@pytest.fixture(scope="session")
def execd():
    home = Path(tempfile.mkdtemp(prefix="execd-clients-"))
    home.chmod(0o755)
    execd = Execd(home)
    yield execd
    code = execd.end()
    log = execd.log.read_text()
    shutil.rmtree(home, ignore_errors=True)
    expected = (0,) if MODE == "pid1" else (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert code in expected, f"execd ended with {code}:\n{log[-4000:]}"
    assert "panicked" not in log, log


@pytest.fixture(scope="session")
def lifecycle(execd):
    lifecycle = Lifecycle(f"127.0.0.1:{execd.port}", {TOKEN_HEADER: TOKEN})
    yield lifecycle
    lifecycle.close()


CALLED = set()


class Recorded:
    """A service of the SDK that notes which of its methods are used."""

    def __init__(self, service, kind, flavour):
        self.service, self.kind, self.flavour = service, kind, flavour

    def __getattr__(self, name):
        CALLED.add((self.flavour, self.kind, name))
        return getattr(self.service, name)


class Sandbox:
    """An SDK sandbox with its services recorded."""

    def __init__(self, sandbox, flavour):
        self.sdk, self.flavour = sandbox, flavour
        self.commands = Recorded(sandbox.commands, "commands", flavour)
        self.files = Recorded(sandbox.files, "files", flavour)
        self.metrics = Recorded(sandbox.metrics, "metrics", flavour)

    def as_user(self, uid, gid):
        return Recorded(self.sdk.files_with_identity(uid, gid), "files", self.flavour)

    def handlers(self, **functions):
        """Handlers of the right kind from plain functions."""
        if self.flavour == "sync":
            from opensandbox.models.execd_sync import ExecutionHandlersSync

            return ExecutionHandlersSync(**functions)
        from opensandbox.models.execd import ExecutionHandlers

        def awaitable(function):
            async def call(event):
                function(event)

            return call

        return ExecutionHandlers(**{name: awaitable(function) for name, function in functions.items()})


async def create(flavour, lifecycle, **further):
    import opensandbox
    from opensandbox.config import ConnectionConfig, ConnectionConfigSync
    from opensandbox.sync import SandboxSync

    options = {"domain": lifecycle.address, "api_key": "unused", "request_timeout": timedelta(seconds=30)}
    if flavour == "async":
        created = opensandbox.Sandbox.create("none", connection_config=ConnectionConfig(**options), **further)
    else:
        created = SandboxSync.create("none", connection_config=ConnectionConfigSync(**options), **further)
    return Sandbox(await done(created), flavour)


@pytest.fixture(params=["async", "sync"], scope="session")
async def sandbox(request, lifecycle):
    sandbox = await create(request.param, lifecycle)
    yield sandbox
    await done(sandbox.sdk.close())


@pytest.fixture
def commands(sandbox):
    return sandbox.commands


@pytest.fixture
def files(sandbox):
    return sandbox.files


@pytest.fixture
def folder():
    """A directory of the test's own, which everybody may enter and write to."""
    path = Path(tempfile.mkdtemp(prefix="execd-clients-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)
