"""gRPC from one end to the other: grpcio outside, grpcio in a sandbox, and the gateway between them."""

import json
import os
import queue
import subprocess
import time
import urllib.request
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from conftest import API_KEY, OSB, free_port, serving
from opensandbox.config import ConnectionConfigSync
from opensandbox.models.execd import RunCommandOpts
from opensandbox.sync import SandboxSync

INSIDE = Path(os.environ["GRPC_INSIDE"])
SERVICE = Path(__file__).with_name("service.py")
PORT = 50051
LARGE = 64 * 1024 * 1024
WAIT = 120


@pytest.fixture(scope="module", params=["plain", "tls"])
def gateway(request, tmp_path_factory):
    """A server with a gateway, with TLS or without, and how its clients trust it."""
    port = free_port()
    more = (
        f'[ingress]\nmode = "gateway"\n[ingress.gateway]\nport = {port}\naddress = "*.sandboxes.test:{port}"\n'
        'route.mode = "wildcard"\n'
    )
    credentials = None
    if request.param == "tls":
        made = tmp_path_factory.mktemp("tls") / "made"
        init = [OSB, "server", "tls", "init", made, "--name", "*.sandboxes.test"]
        subprocess.run(init, check=True, capture_output=True, timeout=60)
        more += f'tls.certificate = "{made}/server.pem"\ntls.key = "{made}/server.key"\n'
        credentials = grpc.ssl_channel_credentials((made / "ca.pem").read_bytes())
    with serving(more) as server:
        server.gateway, server.credentials = port, credentials
        yield server


@pytest.fixture(scope="module")
def sandbox(gateway):
    config = ConnectionConfigSync(
        api_key=API_KEY, domain=gateway.address, use_server_proxy=True, request_timeout=timedelta(seconds=60),
    )
    sandbox = SandboxSync.create("host", connection_config=config)
    for path in sorted(path for path in INSIDE.rglob("*") if path.is_file() and path.suffix in (".py", ".so", ".pem")):
        if "tests" not in path.parts:
            sandbox.files.write_file(f"/tmp/inside/{path.relative_to(INSIDE)}", path.read_bytes())
    sandbox.files.write_file("/tmp/service.py", SERVICE.read_text())
    # Returns when the service has said that it listens, and leaves it running.
    started = sandbox.commands.run(
        f"mkfifo /tmp/said; PYTHONPATH=/tmp/inside setsid /usr/bin/python3 /tmp/service.py {PORT} >/tmp/said "
        "2>/tmp/log & head -n 1 /tmp/said; cat /tmp/log",
        opts=RunCommandOpts(timeout=timedelta(seconds=WAIT)),
    )
    assert [line.text.strip() for line in started.logs.stdout] == ["listening"], started
    yield sandbox
    sandbox.kill()
    sandbox.close()


class Service:
    """A channel to the service, and what lets its calls in."""

    def __init__(self, gateway, sandbox, host=None):
        options = [
            ("grpc.max_receive_message_length", LARGE), ("grpc.max_send_message_length", LARGE),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if host is not None:
            options.append(("grpc.default_authority", host))
        address = f"localhost:{gateway.gateway}"
        if gateway.credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, gateway.credentials, options)
        self.token = sandbox.get_endpoint(PORT).headers["X-EXECD-ACCESS-TOKEN"]
        self.metadata = [("opensandbox-secure-access", self.token)]
        if host is None:
            self.metadata.append(("opensandbox-ingress-to", f"{sandbox.id}-{PORT}"))

    def call(self, method, kind="unary_unary"):
        made = getattr(self.channel, kind)(f"/test.Service/{method}")
        return lambda request, **more: made(request, metadata=self.metadata, timeout=WAIT, **more)


@pytest.fixture
def service(gateway, sandbox):
    service = Service(gateway, sandbox)
    yield service
    service.channel.close()


def test_unary_with_metadata_and_trailers(service):
    made = service.channel.unary_unary("/test.Service/Echo")
    answer, call = made.with_call(b"hello", metadata=[*service.metadata, ("x-own", "1")], timeout=WAIT)
    assert answer == b"hello"
    assert call.code() is grpc.StatusCode.OK
    initial = dict(call.initial_metadata())
    seen = initial["x-seen"].split(",")
    assert "x-own" in seen
    for ours in ("opensandbox-secure-access", "opensandbox-ingress-to", "x-execd-access-token"):
        assert ours not in seen
    trailing = dict(call.trailing_metadata())
    assert trailing["x-trailer"] == "from inside"
    assert trailing["x-raw-bin"] == b"\x00\xff"


def test_streams_of_the_server_the_client_and_both(service):
    assert list(service.call("Count", "unary_stream")(b"1000")) == [b"%d" % number for number in range(1000)]
    assert service.call("Total", "stream_unary")(iter([b"x" * 1000] * 500)) == b"500000"
    said = queue.SimpleQueue()
    heard = service.call("Converse", "stream_stream")(iter(said.get, None))
    for turn in range(50):
        # Each is answered before the next is said.
        said.put(b"%d" % turn)
        assert next(heard) == b"heard %d" % turn
    said.put(None)
    assert list(heard) == []


def test_large_messages(service):
    large = os.urandom(16 * 1024 * 1024)
    assert service.call("Echo")(large) == large


def test_an_error_of_the_service_is_its_own(service):
    with pytest.raises(grpc.RpcError) as failed:
        service.call("Fail")(b"")
    assert failed.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert failed.value.details() == "not like this: \u00e9"
    assert dict(failed.value.trailing_metadata())["x-trailer"] == "of a failure"
    with pytest.raises(grpc.RpcError) as failed:
        service.call("NoSuchMethod")(b"")
    assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_call_that_is_cancelled_ends_inside(service):
    hanging = service.call("Hang", "unary_stream")(b"")
    assert next(hanging) == b"begun"
    hanging.cancel()
    assert service.call("WasGivenUp")(b"") == b"yes"
    # And one whose time is over.
    made = service.channel.unary_stream("/test.Service/Hang")
    hanging = made(b"", metadata=service.metadata, timeout=2)
    with pytest.raises(grpc.RpcError) as ended:
        list(hanging)
    assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert service.call("WasGivenUp")(b"") == b"yes"


def test_a_host_name_names_the_service(gateway, sandbox):
    service = Service(gateway, sandbox, host=f"{sandbox.id}-{PORT}.sandboxes.test:{gateway.gateway}")
    assert service.call("Echo")(b"by name") == b"by name"
    service.channel.close()


def test_who_may_not_call_is_told_so(gateway, sandbox, service):
    service.metadata = service.metadata[1:]
    with pytest.raises(grpc.RpcError) as refused:
        service.call("Echo")(b"")
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    service.metadata = [("opensandbox-ingress-to", f"{sandbox.id}-50052"), ("opensandbox-secure-access", service.token)]
    with pytest.raises(grpc.RpcError) as nobody:
        service.call("Echo")(b"")
    assert nobody.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_stream_ends_with_the_right_to_it(gateway, sandbox):
    expires = int(time.time()) + 15
    asked = urllib.request.Request(
        f"http://{gateway.address}/v1/sandboxes/{sandbox.id}/endpoints/{PORT}?expires={expires}",
        headers={"OPEN-SANDBOX-API-KEY": API_KEY},
    )
    signed = json.load(urllib.request.urlopen(asked, timeout=WAIT))
    assert not signed.get("headers"), "whoever knows the name needs nothing else"
    service = Service(gateway, sandbox, host=signed["endpoint"])
    service.metadata = []
    hanging = service.call("Hang", "unary_stream")(b"")
    assert next(hanging) == b"begun"
    with pytest.raises(grpc.RpcError) as ended:
        next(hanging)
    assert ended.value.code() is grpc.StatusCode.CANCELLED
    assert time.time() >= expires
    service.channel.close()
