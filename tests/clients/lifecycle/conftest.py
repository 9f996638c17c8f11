"""A real server for the published clients: `osb server` on loopback, on the backend that
OSB_TEST_BACKEND names (embedded when unset), with an API key, host paths allowed in one
directory, and everything it leaves in a temporary place.

The same tests run for the asynchronous and the synchronous client: the `client` fixture hides
which one it is, and `done` waits for an answer where there is something to wait for.
"""

import contextlib
import http.client
import inspect
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
OSB = Path(os.environ.get("OSB_BIN", REPO / "target/release/osb"))
BACKEND = os.environ.get("OSB_TEST_BACKEND", "embedded")
IMAGE = os.environ.get("OSB_TEST_IMAGE", "host")
API_KEY = "a-key-for-tests"
# A node keeps free for a pod what it asks for, and this machine may be all of the cluster.
RESOURCE = {"cpu": "50m" if BACKEND == "kubernetes" else "1", "memory": "512Mi"}
# The server says READY=1 within this, also on a machine that is busy with other tests.
START_SECONDS_MAX = 60

# A shell has its background jobs ignore SIGINT and SIGQUIT, nohup SIGHUP, and programs that are started
# inherit that: osb, rightly, would not be ended by them. A handler is not inherited: what the tests
# start has the default action, wherever the tests themselves were started.
for ended_by in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ended_by) == signal.SIG_IGN:
        signal.signal(ended_by, signal.default_int_handler)


async def done(value):
    """The value, or what awaiting it gives."""
    return await value if inspect.isawaitable(value) else value


@dataclass
class Server:
    address: str
    host_paths: Path
    process: subprocess.Popen
    log: Path

    @property
    def environment(self):
        return {
            **os.environ,
            "OPEN_SANDBOX_DOMAIN": self.address,
            "OPEN_SANDBOX_API_KEY": API_KEY,
            "OPENSANDBOX_DISABLE_METRICS": "0",
        }


RESERVED = []


def free_port():
    """A port that nobody else gets: it stays bound here and is never listened on. The program under
    test may bind it all the same, because both ask for SO_REUSEADDR."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    RESERVED.append(probe)
    return probe.getsockname()[1]


def delete_all(port, authority=None):
    """Sandboxes outlive their server, and a pool of the SDK leaves its idle ones alive."""
    if authority is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS_MAX)
    else:
        trusted = ssl.create_default_context(cafile=authority)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=START_SECONDS_MAX, context=trusted)

    def call(method, path):
        connection.request(method, path, headers={"OPEN-SANDBOX-API-KEY": API_KEY})
        response = connection.getresponse()
        return response.status, response.read()

    status, body = call("GET", "/v1/sandboxes?pageSize=200")
    assert status == 200, body
    for sandbox in json.loads(body)["items"]:
        status, body = call("DELETE", f"/v1/sandboxes/{sandbox['id']}")
        assert status in (204, 404), body


@contextlib.contextmanager
def serving(more="", authority=None):
    """A server with these sections besides the usual ones, until the end of the block. `authority` is that of its
    certificate, where the sections give it one."""
    if os.geteuid() != 0:
        message = "these tests make real sandboxes and need root: sudo make test"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    home = Path(tempfile.mkdtemp(prefix="osb-clients-"))
    shared = home / "shared"
    shared.mkdir()
    # Root in a sandbox is nobody of this machine there.
    shared.chmod(0o777)
    port = free_port()
    config = home / "config.toml"
    sections = {
        # Registries of the tests are on this machine, which an operator has to allow.
        "embedded": f'[embedded]\ndata_dir = "{home}/data"\ninsecure_registries = ["127.0.0.1"]\n',
        # DOCKER_HOST says where the engine is; tests/docker/engine sets it.
        "docker": f'[docker]\nnetwork_mode = "bridge"\ndata_dir = "{home}/data"\n',
        # KUBECONFIG says where the cluster is; tests/kubernetes/cluster/run sets both.
        "kubernetes": f'execd_image = "{os.environ.get("OSB_TEST_EXECD_IMAGE")}"\n'
                      f'[kubernetes]\ndata_dir = "{home}/data"\n',
    }
    config.write_text(
        f'[server]\nhost = "127.0.0.1"\nport = {port}\napi_key = "{API_KEY}"\n'
        f'[runtime]\ntype = "{BACKEND}"\n{sections[BACKEND]}'
        f'[store]\npath = "{home}/osb.db"\n'
        f'[storage]\nallowed_host_paths = ["{shared}"]\n{more}'
    )
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(home / "notify"))
    notify.settimeout(START_SECONDS_MAX)
    log = home / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [OSB, "server", "--config", config],
            env={**os.environ, "NOTIFY_SOCKET": str(home / "notify")},
            stdout=out, stderr=subprocess.STDOUT,
        )
    try:
        while b"READY=1" not in notify.recv(4096):
            pass
    except TimeoutError:
        process.kill()
        pytest.fail(f"the server did not become ready:\n{log.read_text()}")
    yield Server(f"127.0.0.1:{port}", shared, process, log)
    delete_all(port, authority)
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=START_SECONDS_MAX)
    print(log.read_text()[-4000:])
    shutil.rmtree(home, ignore_errors=True)
    assert code == 0, f"the server ended with {code}"


@pytest.fixture(scope="session")
def server():
    with serving() as server:
        yield server


class Client:
    """The classes of one flavour of the Python SDK, with the connection filled in."""

    def __init__(self, flavour, server, use_server_proxy=False):
        import opensandbox
        from opensandbox.config import ConnectionConfig, ConnectionConfigSync
        from opensandbox.sync import SandboxManagerSync, SandboxSync

        self.flavour = flavour
        options = {
            "api_key": API_KEY,
            "domain": server.address,
            "request_timeout": timedelta(seconds=60),
            "use_server_proxy": use_server_proxy,
        }
        if flavour == "async":
            self.Sandbox, self.Manager = opensandbox.Sandbox, opensandbox.SandboxManager
            self.config = lambda: ConnectionConfig(**options)
        else:
            self.Sandbox, self.Manager = SandboxSync, SandboxManagerSync
            self.config = lambda: ConnectionConfigSync(**options)
        self.made = []

    async def create(self, image=IMAGE, **options):
        options.setdefault("connection_config", self.config())
        options.setdefault("resource", RESOURCE)
        sandbox = await done(self.Sandbox.create(image, **options))
        self.made.append(sandbox)
        return sandbox

    async def connect(self, sandbox_id):
        sandbox = await done(self.Sandbox.connect(sandbox_id, connection_config=self.config()))
        return sandbox

    async def manager(self):
        return await done(self.Manager.create(connection_config=self.config()))

    async def end(self):
        from opensandbox.exceptions import SandboxApiException

        for sandbox in self.made:
            try:
                await done(sandbox.kill())
            except SandboxApiException as error:
                assert error.status_code == 404, error
            await done(sandbox.close())


@pytest.fixture(params=["async", "sync"])
async def client(request, server):
    client = Client(request.param, server)
    yield client
    await client.end()


@pytest.fixture
async def sandbox(client):
    return await client.create()


def newer_than_0_1():
    from importlib.metadata import version

    return not version("opensandbox").startswith("0.")


only_1_1 = pytest.mark.skipif(
    "not __import__('conftest').newer_than_0_1()",
    reason="this method came with SDK 1.x and does not exist in 0.1.10",
)
