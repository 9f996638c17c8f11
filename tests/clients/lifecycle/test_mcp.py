"""The published MCP server 1.1.1 over stdio, driven by the official client."""

import sys
from pathlib import Path

import pytest
from conftest import API_KEY, IMAGE

MCP = Path(sys.executable).with_name("opensandbox-mcp")
pytestmark = pytest.mark.skipif(not MCP.exists(), reason="the MCP server is published for 1.1.1 only")


async def test_every_tool(server):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(
        command=str(MCP), args=["--domain", server.address, "--api-key", API_KEY], env=server.environment,
    )
    called = set()
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        offered = {tool.name for tool in (await session.list_tools()).tools}

        async def call(name, **arguments):
            called.add(name)
            answer = await session.call_tool(name, arguments)
            failed = getattr(answer, "is_error", None) or getattr(answer, "isError", None)
            assert not failed, (name, answer.content)
            return getattr(answer, "structured_content", None) or getattr(answer, "structuredContent", None)

        made = await call("sandbox_create", image=IMAGE, timeout_seconds=300)
        one = made.get("sandbox_id") or made.get("id") or made["result"]["id"]
        await call("sandbox_connect", sandbox_id=one)
        await call("sandbox_get_info", sandbox_id=one)
        assert one in str(await call("sandbox_list"))
        await call("sandbox_renew", sandbox_id=one, timeout_seconds=600)
        await call("sandbox_get_metrics", sandbox_id=one)
        assert "rue" in str(await call("sandbox_healthcheck", sandbox_id=one))
        assert "8080" in str(await call("sandbox_get_endpoint", sandbox_id=one, port=8080))
        assert "said" in str(await call("command_run", sandbox_id=one, command="echo said"))
        background = await call("command_run", sandbox_id=one, command="sleep 600", background=True)
        execution = background.get("execution_id") or background.get("id") or background["result"]["id"]
        await call("command_interrupt", sandbox_id=one, execution_id=execution)
        await call("file_create_directories", sandbox_id=one, entries=[{"path": "/tmp/m"}])
        await call("file_write", sandbox_id=one, path="/tmp/m/a.txt", content="alpha beta")
        assert "alpha" in str(await call("file_read", sandbox_id=one, path="/tmp/m/a.txt"))
        await call("file_replace_contents", sandbox_id=one,
                   entries=[{"path": "/tmp/m/a.txt", "old_content": "alpha", "new_content": "gamma"}])
        await call("file_move", sandbox_id=one, entries=[{"src": "/tmp/m/a.txt", "dest": "/tmp/m/b.txt"}])
        assert "b.txt" in str(await call("file_search", sandbox_id=one, path="/tmp/m", pattern="*.txt"))
        await call("file_delete", sandbox_id=one, paths=["/tmp/m/b.txt"])
        await call("file_delete_directories", sandbox_id=one, paths=["/tmp/m"])
        await call("sandbox_kill", sandbox_id=one)
    assert called == offered, f"not called: {offered - called}"
