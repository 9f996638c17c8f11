"""The published clients with a gateway, in each way that it tells them to name a sandbox."""

import http.client
import socket
import subprocess
import time
import urllib.error
import urllib.request
from datetime import timedelta

import pytest
from conftest import OSB, Client, done, free_port, only_1_1, serving

SERVICE = (
    "import http.server,os;os.chdir('/tmp');"
    "http.server.test(http.server.SimpleHTTPRequestHandler,port=8123,bind='127.0.0.1')"
)
CONNECTED = "exec 3<>/dev/tcp/127.0.0.1/8123 2>/dev/null"


@pytest.fixture(scope="module", params=["header", "uri", "wildcard"])
def gateway(request):
    """A server with a gateway, and what its endpoints look like."""
    port = free_port()
    address = {"header": f"127.0.0.1:{port}", "uri": f"127.0.0.1:{port}", "wildcard": f"*.sandboxes.test:{port}"}
    with serving(
        f'[ingress]\nmode = "gateway"\n'
        f'[ingress.gateway]\nport = {port}\naddress = "{address[request.param]}"\n'
        f'route.mode = "{request.param}"\n'
    ) as server:
        server.mode, server.gateway = request.param, address[request.param]
        yield server


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """The operator's DNS: every name of the domain is this machine."""
    resolve = socket.getaddrinfo

    def resolved(host, *rest, **more):
        name = host.decode() if isinstance(host, bytes) else host
        return resolve("127.0.0.1" if name and name.endswith(".sandboxes.test") else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture(params=["async", "sync"])
async def client(request, gateway):
    client = Client(request.param, gateway)
    yield client
    await client.end()


def expected(gateway, sandbox, port):
    return {
        "header": gateway.gateway,
        "uri": f"{gateway.gateway}/{sandbox.id}/{port}",
        "wildcard": f"{sandbox.id}-{port}.{gateway.gateway[2:]}",
    }[gateway.mode]


async def serve(sandbox):
    from opensandbox.models.execd import RunCommandOpts

    await done(sandbox.files.write_file("/tmp/page.txt", "served from inside"))
    await done(sandbox.commands.run(
        f'PATH=$PATH:/usr/bin python3 -u -c "{SERVICE}" 2>&1 || busybox httpd -f -p 127.0.0.1:8123 -h /tmp',
        opts=RunCommandOpts(background=True),
    ))
    # The wait happens inside, on the listener itself: the shell retries its connect.
    await done(sandbox.commands.run(
        f"bash -c 'until {CONNECTED}; do read -t 0.05 <> <(:); done'",
        opts=RunCommandOpts(timeout=timedelta(seconds=90)),
    ))


def fetch(endpoint, headers):
    request = urllib.request.Request(f"http://{endpoint.endpoint}/page.txt", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Reverse-Proxy-Server-PowerBy"] == "OpenSandbox-ingress"
        return answer.read().decode()


async def test_commands_files_and_ports_through_the_gateway(client, gateway):
    sandbox = await client.create()
    endpoint = await done(sandbox.get_endpoint(44772))
    assert endpoint.endpoint == expected(gateway, sandbox, 44772)
    execution = await done(sandbox.commands.run("echo through the gateway"))
    assert execution.logs.stdout[0].text.rstrip("\n") == "through the gateway"
    await serve(sandbox)
    endpoint = await done(sandbox.get_endpoint(8123))
    assert fetch(endpoint, endpoint.headers) == "served from inside"
    names = {name: value for name, value in endpoint.headers.items() if name == "OpenSandbox-Ingress-To"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(endpoint, names)
    assert refused.value.code == 401
    assert refused.value.read().startswith(b"OpenSandbox Ingress: ")


@only_1_1
async def test_a_signed_endpoint_needs_no_token(client, gateway):
    sandbox = await client.create(secure_access=True)
    await serve(sandbox)
    endpoint = await done(sandbox.get_signed_endpoint(8123, int(time.time()) + 600))
    assert "OpenSandbox-Secure-Access" not in (endpoint.headers or {})
    assert fetch(endpoint, endpoint.headers or {}) == "served from inside"


async def test_osb_url_prints_a_link_that_opens_once(client, gateway):
    sandbox = await client.create()
    await serve(sandbox)
    printed = subprocess.run(
        [OSB, "url", sandbox.id, "8123", "--for", "30m"],
        env={**gateway.environment, "HOME": "/nonexistent"}, capture_output=True, text=True, timeout=60,
    )
    if gateway.mode == "wildcard":
        # Without TLS no browser takes our cookie from a domain.
        assert printed.returncode != 0 and "host name of their own" in printed.stderr, printed
        return
    assert printed.returncode == 0, printed.stderr
    link = printed.stdout.strip()
    origin, _, path = link.removeprefix("http://").partition("/")
    assert origin == f"{sandbox.id}-8123.localhost:{gateway.gateway.split(':')[1]}"

    def opened(path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", int(origin.split(":")[1]), timeout=60)
        connection.request("GET", path, headers={"Host": origin, **headers})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    status, headers, _ = opened(f"/{path}")
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"].split(";")[0]
    status, _, text = opened("/page.txt", Cookie=cookie)
    assert (status, text) == (200, "served from inside")
    assert opened(f"/{path}")[0] == 403
