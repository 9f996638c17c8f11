"""The published code interpreter at a real server, the one that tests/clients/lifecycle starts.

One sandbox serves all tests of a flavour, asynchronous or synchronous; every test has contexts of
its own.
"""

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opensandbox.models.sandboxes import Host, Volume

LIFECYCLE = Path(__file__).resolve().parents[1] / "lifecycle/conftest.py"
spec = importlib.util.spec_from_file_location("lifecycle_conftest", LIFECYCLE)
lifecycle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lifecycle)
server = lifecycle.server
done = lifecycle.done


@dataclass
class Interpreter:
    """One flavour of the client, with a sandbox."""

    flavour: str
    client: Any

    @property
    def codes(self):
        return self.client.codes

    async def context(self, language):
        return await done(self.codes.create_context(language))

    async def run(self, code, **where):
        return await done(self.codes.run(code, **where))


def texts(messages):
    return "".join(message.text for message in messages)


@pytest.fixture(scope="session")
def science(server):
    """The packages for figures and tables, where the server allows host paths."""
    place = server.host_paths / "science"
    shutil.copytree(os.environ["OSB_TEST_SCIENCE"], place, copy_function=link_or_copy)
    return place


def link_or_copy(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="session", params=["async", "sync"])
async def interpreter(request, server, science):
    from code_interpreter import CodeInterpreter, CodeInterpreterSync

    maker = CodeInterpreter if request.param == "async" else CodeInterpreterSync
    client = lifecycle.Client(request.param, server)
    volume = Volume(name="science", host=Host(path=str(science)), mount_path="/science", read_only=True)
    sandbox = await client.create(resource={"cpu": "2", "memory": "2Gi"}, volumes=[volume])
    yield Interpreter(request.param, await done(maker.create(sandbox)))
    await client.end()
