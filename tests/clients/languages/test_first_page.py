"""The first example of the published package's own page, unchanged, in a fresh virtual environment, on a machine
without an image registry.

The example names a host and a key. The key is the server's here; the host leads, in a mount namespace whose
/etc/hosts says so, to a relay at port 80 of a loopback address.
"""

import importlib.metadata
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import pytest
from conftest import API_KEY, IMAGE

PACKAGE = "opensandbox-code-interpreter"
# Nobody else's: the other tests use 127.0.0.1.
ADDRESS = "127.0.0.77"
DEADLINE = 300


def example():
    """The first Python block of the page that the package index shows."""
    page = importlib.metadata.metadata(PACKAGE)
    text = page.get_payload() or page["Description"]
    code = re.search(r"```python\n(.*?)```", text, re.S)[1]
    host = re.search(r'domain="([a-z.]+)"', code)[1]
    assert f'api_key="{API_KEY}"' in code, "the page names another key"
    image = re.search(r'"(opensandbox/code-interpreter:[^"]+)"', code)[1]
    assert image != IMAGE, "the page's image is here under its own name; nothing is shown then"
    return code, host, image


def relay(listener, server):
    """Carries connections to the server until the listener is closed."""
    host, port = server.split(":")

    def copy(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # The other side has gone.
            pass

    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        upstream = socket.create_connection((host, int(port)))
        for pair in ((client, upstream), (upstream, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()


@pytest.fixture
def port_80(server):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((ADDRESS, 80))
    listener.listen(64)
    threading.Thread(target=relay, args=(listener, server), daemon=True).start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def call(server, method, path, body=None):
    request = urllib.request.Request(
        f"http://{server}/v1{path}", json.dumps(body).encode() if body else None, method=method,
        headers={"OPEN-SANDBOX-API-KEY": API_KEY, "content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_first_page_example_runs_unchanged(server, port_80, tmp_path):
    code, host, _ = example()
    packages = [f"{name}=={importlib.metadata.version(name)}" for name in (PACKAGE, "opensandbox")]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], check=True)
    program, hosts = tmp_path / "first_page.py", tmp_path / "hosts"
    program.write_text(code)
    hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} {host}\n")
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$1" "$2"', hosts, python, program],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE,
    )
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.splitlines()[-1] == "4", ran.stdout


def test_an_alias_means_exactly_its_image_and_says_which(server):
    _, _, image = example()
    status, images = call(server, "GET", "/images")
    assert status == 200
    [digest] = [one["id"] for one in images["items"] if f"docker.io/{IMAGE}" in one["references"]]
    wanted = {"timeout": 60, "resourceLimits": {"cpu": "1", "memory": "512Mi"}, "entrypoint": ["sleep", "600"]}
    status, made = call(server, "POST", "/sandboxes", {**wanted, "image": {"uri": image}})
    assert status == 202, made
    _, found = call(server, "GET", f"/sandboxes/{made['id']}")
    call(server, "DELETE", f"/sandboxes/{made['id']}")
    assert made["imageDigest"] == found["imageDigest"] == digest
    assert found["image"]["uri"] == image
    # A neighbouring tag is no alias: it would have to come from a registry, and there is none.
    status, refused = call(server, "POST", "/sandboxes", {**wanted, "image": {"uri": f"{image}-other"}})
    if status == 202:
        # Finding that out took longer than the answer is held back; this waits for it.
        status, refused = call(server, "GET", f"/sandboxes/{refused['id']}/endpoints/44772")
    assert status >= 400, refused
    assert f"{image}-other" in refused["message"], refused
    # The alias cannot be given to another image.
    names = urllib.parse.urlencode({"reference": IMAGE, "name": image})
    status, refused = call(server, "POST", f"/images/tag?{names}")
    assert status == 400 and "image_aliases" in refused["message"], refused
