"""docs/agents.md, by doing what it says: every command runs, every block of settings leads to a
server that the official client speaks to.

The agents themselves are not started here; `make test-agents` does that.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess

import guide
import httpx2
import pytest
from conftest import API_KEY, IMAGE, OSB, TOKEN, Session, listening

# No command of the guide takes this long; it only keeps a broken one from hanging.
DEADLINE_SECONDS = 60
# Lines that start an agent; its own program reads them in `make test-agents`.
AGENT_PROGRAMS = ("claude", "codex", "gemini")


@pytest.fixture
def place(tmp_path):
    """An environment as a reader has it: `osb` on the path, a home, and nothing said about servers."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/osb").symlink_to(OSB)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPEN_SANDBOX_", "OPENSANDBOX_"))}
    return {**kept, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}


def shell(text, place):
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], env=place, cwd=place["HOME"],
                          capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def own(server, **more):
    """What stands in place of the guide's examples here."""
    return {"localhost:8080": server.address, "YOUR-KEY": API_KEY, "YOUR-TOKEN": TOKEN, **more}


def of(heading, language="sh"):
    return [block for block in guide.blocks() if (block.heading, block.language) == (heading, language)]


def configured(server, place):
    [block] = of("Say where the server is")
    return shell(block.filled(own(server)), place)


@contextlib.asynccontextmanager
async def started(command, arguments, environment):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=command, args=arguments, env=environment)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield Session(session)


@contextlib.asynccontextmanager
async def reached(url, headers):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as client,
        streamable_http_client(url, http_client=client) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield Session(session)


def test_the_guide_is_whole():
    """No block is left out below, and every agent has its own."""
    known = {"Say where the server is", "Limit what an agent may do", "Share one MCP server over HTTP",
             "Install the skills", "When the tools do not appear", "When a sandbox does not work", *guide.AGENTS}
    assert {block.heading for block in guide.blocks()} == known
    assert {block.language for block in guide.blocks()} == {"sh", "json", "toml"}


@pytest.mark.parametrize("block", [pytest.param(block, id=block.heading) for block in guide.settings()])
async def test_settings_lead_to_a_server(server, place, block):
    [registered] = guide.registrations(block.filled(own(server)), block.language)
    url = registered.get("url") or registered.get("httpUrl")
    if url:
        if "bearer_token_env_var" in registered:
            assert registered["bearer_token_env_var"] == "OPENSANDBOX_MCP_AUTH_TOKEN"
            headers = {"Authorization": f"Bearer {TOKEN}"}
        else:
            headers = registered["headers"]
        assert url == "http://127.0.0.1:8000/mcp"
        with listening(server) as here:
            async with reached(here, headers) as session:
                await session.call("sandbox_list")
        return
    environment = {**place, **registered.get("env", {})}
    if "env" not in registered:
        configured(server, place)
    async with started(registered["command"], registered["args"], environment) as session:
        await session.call("sandbox_list")


async def test_limits_of_the_guide_hold(server, place):
    configured(server, place)
    [block] = of("Limit what an agent may do", "json")
    [registered] = guide.registrations(block.text, "json")
    async with started(registered["command"], registered["args"], place) as session:
        assert "not allowed" in await session.refused("sandbox_create", image="debian:12")
        assert "3600 seconds" in await session.refused("sandbox_create", image="host", timeout_seconds=3601)
        assert "1Gi" in await session.refused("sandbox_create", image="host", resource={"memory": "2Gi"})
        # What the agent says nothing about stays within the limits by itself.
        made = (await session.call("sandbox_create", image="host"))["sandbox_id"]
        await session.call("sandbox_kill", sandbox_id=made)


@pytest.mark.parametrize("agent", ["Claude Code", "Codex", "Gemini CLI"])
async def test_the_registered_command_is_a_server(server, place, agent):
    configured(server, place)
    add, *rest = [shlex.split(line) for line in guide.commands(agent)]
    assert add[0] in AGENT_PROGRAMS and add[1:3] == ["mcp", "add"]
    assert rest == [[add[0], "mcp", "list"]]
    command = add[add.index("sandboxes") + 1:]
    command = command[1:] if command[0] == "--" else command
    async with started(command[0], command[1:], place) as session:
        assert len((await session.raw.list_tools()).tools) > 19


async def test_one_server_is_shared_over_http(server, place):
    configured(server, place)
    [block] = of("Share one MCP server over HTTP")
    # Its port may be taken on the machine that tests.
    text = block.filled(own(server)).replace("--port 8000", "--port 0")
    serving = subprocess.Popen(["bash", "-c", text.replace("\nosb", "\nexec osb")], env=place,
                               stderr=subprocess.PIPE, text=True)
    try:
        url = re.search(r"http://\S+/mcp", serving.stderr.readline())[0]
        async with reached(url, {"Authorization": f"Bearer {TOKEN}"}) as session:
            await session.call("sandbox_list")
    finally:
        serving.terminate()
        assert serving.wait(DEADLINE_SECONDS) == 0


def test_skills_are_installed(server, place, tmp_path):
    [block] = of("Install the skills")
    shell(block.text, place)
    for path in (".claude/skills/{}/SKILL.md", ".codex/skills/{}/SKILL.md", ".gemini/skills/{}/SKILL.md",
                 ".cursor/rules/{}.mdc"):
        text = (tmp_path / path.format("sandbox-troubleshooting")).read_text()
        assert text.startswith("---\n") and "\ndescription: " in text, path


def test_the_server_answers_by_hand(server, place):
    configured(server, place)
    [block] = of("When the tools do not appear")
    answer = json.loads(shell(block.text, place))
    assert answer["result"]["serverInfo"]["version"]


async def test_a_sandbox_is_looked_into(server, place):
    configured(server, place)
    show, look = of("When a sandbox does not work")
    assert "Triage Order" in shell(show.text, place)
    made = shell(f"osb sandbox create -i {IMAGE} -t 5m -o name", place).strip()
    try:
        for line in look.filled(own(server, SANDBOX_ID=made)).splitlines():
            said = shell(line, place)
            assert made in said or "logs" in line, said
    finally:
        shell(f"osb rm {made}", place)
