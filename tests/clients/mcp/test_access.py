"""Who may reach the HTTP transport, and what is refused at the start."""

import os
import subprocess

import httpx2
import pytest
from conftest import API_KEY, IMAGE, OSB, TOKEN, listening

HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {},
               "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def hello(url, **headers):
    return httpx2.post(url, json=HELLO, headers={**ACCEPT, **headers}, timeout=20).status_code


def test_the_token_is_needed(server):
    with listening(server) as url:
        assert hello(url) == 401
        assert hello(url, Authorization="Bearer wrong-token-wrong-token") == 401
        assert hello(url, Authorization=f"Bearer {TOKEN}x") == 401
        assert hello(url, Authorization=f"Bearer {TOKEN}") == 200
        assert httpx2.get(url.replace("/mcp", "/"), timeout=20).status_code == 401


def test_without_a_token_only_this_machine_under_its_own_name(server):
    with listening(server, token=None) as url:
        assert hello(url) == 200
        assert hello(url, Host="evil.example") in (400, 403)


def test_a_web_page_needs_a_name(server):
    ours = "http://page.example:6274"
    for token, headers in ((None, {}), (TOKEN, {"Authorization": f"Bearer {TOKEN}"})):
        with listening(server, token=token) as url:
            for origin in (url.removesuffix("/mcp"), "http://evil.example", "null", ours):
                assert hello(url, Origin=origin, **headers) == 403, origin
            assert hello(url, **headers) == 200
        with listening(server, "--allow-origin", ours, token=token) as url:
            assert hello(url, Origin=ours, **headers) == 200
            for origin in ("http://page.example:1", "https://page.example:6274", "null"):
                assert hello(url, Origin=origin, **headers) == 403, origin


@pytest.mark.parametrize("options, says", [
    (["--transport", "streamable-http", "--host", "0.0.0.0"], "--auth-token"),
    (["--transport", "streamable-http", "--auth-token", "short"], "16 characters"),
    (["--max-resource", "cpu=lots"], "NAME=AMOUNT"),
    (["--limits", "/no/such/file"], "/no/such/file"),
    (["--protocol", "ftp"], "possible values"),
    (["--domain", "not a host"], "host[:port]"),
])
def test_what_cannot_work_is_said_at_the_start(options, says):
    environment = {**os.environ, "OPEN_SANDBOX_API_KEY": API_KEY}
    ended = subprocess.run(
        [OSB, "mcp", *options], env=environment, capture_output=True, text=True, timeout=20,
        stdin=subprocess.DEVNULL)
    assert ended.returncode != 0 and says in ended.stderr, ended
    assert ended.stdout == "" and "panicked" not in ended.stderr


async def test_every_option_of_the_published_server(server, tmp_path):
    """All at once, under the published program's name."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    program = tmp_path / "opensandbox-mcp"
    program.symlink_to(OSB)
    options = ["--transport", "stdio", "--host", "127.0.0.1", "--port", "8000", "--api-key", API_KEY,
               "--domain", server.address, "--protocol", "http", "--request-timeout-seconds", "30",
               "--use-server-proxy"]
    parameters = StdioServerParameters(command=str(program), args=options, env={"PATH": os.environ["PATH"]})
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        made = await session.call_tool("sandbox_create", {"image": IMAGE})
        id = made.structured_content["sandbox_id"]
        ran = await session.call_tool("command_run", {"sandbox_id": id, "command": "echo proxied"})
        assert ran.structured_content["logs"]["stdout"][0]["text"] == "proxied\n"
        await session.call_tool("sandbox_kill", {"sandbox_id": id})
