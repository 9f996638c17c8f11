"""A real server, and `osb mcp` in front of it over either transport."""

import contextlib
import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

# The server is the one that the published clients are tested with.
_spec = importlib.util.spec_from_file_location(
    "lifecycle_conftest", Path(__file__).resolve().parents[1] / "lifecycle/conftest.py"
)
_lifecycle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_lifecycle)
OSB, API_KEY, IMAGE = _lifecycle.OSB, _lifecycle.API_KEY, _lifecycle.IMAGE
server = _lifecycle.server

TOKEN = "a-token-for-tests-0123456789"


class Session:
    """A client that fails when a tool does, and remembers what was called."""

    def __init__(self, session):
        self.raw, self.called = session, set()

    async def call(self, name, /, **arguments):
        """The structured answer of a tool that must succeed."""
        answer = await self.answer(name, **arguments)
        assert not answer.is_error, (name, answer.content)
        return answer.structured_content

    async def refused(self, name, /, **arguments):
        """The message of a tool that must fail."""
        answer = await self.answer(name, **arguments)
        assert answer.is_error, (name, answer.structured_content)
        return answer.content[0].text

    async def answer(self, name, /, **arguments):
        self.called.add(name)
        return await self.raw.call_tool(name, arguments)


@contextlib.asynccontextmanager
async def stdio(server, *options):
    """`osb mcp` as an MCP client starts it."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    arguments = ["mcp", "--domain", server.address, "--api-key", API_KEY, *options]
    parameters = StdioServerParameters(command=str(OSB), args=arguments, env=dict(os.environ))
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield Session(session)


@contextlib.contextmanager
def listening(server, *options, token=TOKEN):
    """`osb mcp` over HTTP on a free port; gives its URL."""
    environment = {k: v for k, v in os.environ.items() if k != "OPENSANDBOX_MCP_AUTH_TOKEN"}
    if token:
        environment["OPENSANDBOX_MCP_AUTH_TOKEN"] = token
    process = subprocess.Popen(
        [OSB, "mcp", "--transport", "streamable-http", "--port", "0",
         "--domain", server.address, "--api-key", API_KEY, *options],
        env=environment, stderr=subprocess.PIPE, text=True,
    )
    line = process.stderr.readline()
    found = re.search(r"http://\S+/mcp", line)
    assert found, line + process.stderr.read()
    try:
        yield found[0]
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0, process.stderr.read()


@contextlib.asynccontextmanager
async def http(server, *options):
    """A client over HTTP."""
    import httpx2
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    with listening(server, *options) as url:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
            streamable_http_client(url, http_client=client) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            yield Session(session)


@pytest.fixture(params=["stdio", "http"])
def transport(request):
    return {"stdio": stdio, "http": http}[request.param]
