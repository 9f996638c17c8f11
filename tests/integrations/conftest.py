"""The server of tests/clients/lifecycle, and where every framework finds it.

Nothing here asks more of a framework's Python than pytest: each test file is run by the one of its framework.
"""

import http.client
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "lifecycle_conftest", Path(__file__).resolve().parents[1] / "clients/lifecycle/conftest.py"
)
lifecycle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(lifecycle)
server = lifecycle.server
KEY = lifecycle.API_KEY
# The filesystem of the machine that the tests run on: it has a shell, Python and the usual programs.
IMAGE = "host"


@pytest.fixture(autouse=True, scope="session")
def connection(server):
    """The server's address, by the variables that the SDKs and frameworks read."""
    given = {
        "OPEN_SANDBOX_DOMAIN": server.address, "OPEN_SANDBOX_API_KEY": KEY, "OPEN_SANDBOX_PROTOCOL": "http",
        "OPENSANDBOX_DOMAIN": server.address, "OPENSANDBOX_API_KEY": KEY,
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    yield server
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def sandboxes(server, **metadata):
    """The ids of the sandboxes that are there, all or with a label."""
    query = "".join(f"&metadata={name}%3D{value}" for name, value in metadata.items())
    connection = http.client.HTTPConnection(server.address, timeout=60)
    connection.request("GET", f"/v1/sandboxes?pageSize=200{query}", headers={"OPEN-SANDBOX-API-KEY": KEY})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    return [found["id"] for found in json.loads(body)["items"]]


def run_example(name):
    """Runs a program of examples/ with this framework's Python; it prints what it says at its top."""
    program = Path(__file__).resolve().parents[2] / "examples" / name / "main.py"
    # A key of whoever runs the tests would ask a real model.
    environment = {name: value for name, value in os.environ.items()
                   if name.startswith("OPEN_SANDBOX") or not name.endswith("_API_KEY")}
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    promised = re.search(r"^Prints:\n((?:    .*\n)+)", program.read_text(), re.M)[1]
    assert ran.stdout == textwrap.dedent(promised), ran.stderr
