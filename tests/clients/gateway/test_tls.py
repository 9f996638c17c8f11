"""TLS with an authority of the server's own: the command line, which pins it, and the published SDK, which trusts it."""

import os
import re
import subprocess
from datetime import timedelta

import pytest
from conftest import API_KEY, OSB, free_port, serving

WAIT = 120


def init(directory, *options):
    made = subprocess.run(
        [OSB, "server", "tls", "init", directory, *options], capture_output=True, text=True, timeout=WAIT,
    )
    assert made.returncode == 0, made.stderr
    return re.search(r"OPEN_SANDBOX_TLS_FINGERPRINT=([0-9a-f]{64})\n", made.stdout)[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls") / "made"
    fingerprint, port = init(directory), free_port()
    with serving(
        f'[server.tls]\ncertificate = "{directory}/server.pem"\nkey = "{directory}/server.key"\n'
        f'[ingress]\nmode = "gateway"\n[ingress.gateway]\nport = {port}\n',
        authority=directory / "ca.pem",
    ) as server:
        server.directory, server.fingerprint = directory, fingerprint
        yield server


def osb(server, *words, **variables):
    environment = {
        **server.environment, "HOME": "/nonexistent", "OPEN_SANDBOX_PROTOCOL": "https",
        "OPEN_SANDBOX_TLS_FINGERPRINT": server.fingerprint, **variables,
    }
    environment = {name: value for name, value in environment.items() if value is not None}
    return subprocess.run([OSB, *words], env=environment, capture_output=True, text=True, timeout=WAIT)


def test_osb_knows_the_server_by_the_fingerprint(server):
    ran = osb(server, "run", "host", "--", "sh", "-c", "echo over TLS; exit 7")
    assert (ran.stdout, ran.returncode) == ("over TLS\n", 7), ran.stderr
    flag = osb(server, "--tls-fingerprint", f"sha256:{server.fingerprint.upper()}", "ls",
               OPEN_SANDBOX_TLS_FINGERPRINT=None)
    assert flag.returncode == 0, flag.stderr


def test_osb_speaks_to_no_other_server(server):
    for variables, expected in [
        ({"OPEN_SANDBOX_TLS_FINGERPRINT": "0" * 64}, "no certificate with the fingerprint"),
        ({"OPEN_SANDBOX_TLS_FINGERPRINT": None}, "certificate"),
        ({"OPEN_SANDBOX_TLS_FINGERPRINT": "12"}, "64 hexadecimal digits"),
        ({"OPEN_SANDBOX_PROTOCOL": "http"}, "set the protocol to https"),
        ({"OPEN_SANDBOX_PROTOCOL": "http", "OPEN_SANDBOX_TLS_FINGERPRINT": None}, "this port speaks TLS"),
    ]:
        refused = osb(server, "ls", **variables)
        assert refused.returncode != 0, (variables, refused)
        assert expected in refused.stderr, (variables, refused)
    # The name in the certificate is looked at, too: this machine has addresses that are not in it.
    other = osb(server, "ls", OPEN_SANDBOX_DOMAIN=server.address.replace("127.0.0.1", "127.0.0.2"))
    assert other.returncode != 0


def test_a_renewed_certificate_needs_nothing_new_of_clients(server):
    before = (server.directory / "server.pem").read_bytes()
    assert init(server.directory, "--renew") == server.fingerprint
    assert (server.directory / "server.pem").read_bytes() != before
    ran = osb(server, "ls")
    assert ran.returncode == 0, ran.stderr
    again = subprocess.run([OSB, "server", "tls", "init", server.directory], capture_output=True, text=True, timeout=WAIT)
    assert again.returncode == 1 and "is there already; --renew" in again.stderr


def test_the_published_sdk_trusts_the_authority(server, monkeypatch):
    from opensandbox.config import ConnectionConfigSync
    from opensandbox.sync import SandboxSync

    monkeypatch.setitem(os.environ, "SSL_CERT_FILE", str(server.directory / "ca.pem"))
    config = ConnectionConfigSync(
        api_key=API_KEY, domain=server.address, protocol="https", request_timeout=timedelta(seconds=60),
    )
    sandbox = SandboxSync.create("host", connection_config=config)
    endpoint = sandbox.get_endpoint(44772)
    assert "OpenSandbox-Ingress-To" in endpoint.headers, "through the gateway"
    execution = sandbox.commands.run("echo over TLS")
    assert execution.logs.stdout[0].text.rstrip("\n") == "over TLS"
    sandbox.kill()
    sandbox.close()
