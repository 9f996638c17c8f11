"""The OpenAI Agents SDK with our adapter: sessions with commands and files, one that outlives its sandbox, and an agent
with a scripted model."""

import io
from pathlib import Path

import pytest
from agents.sandbox.errors import ExecTimeoutError, InvalidManifestPathError, WorkspaceReadNotFoundError
from conftest import IMAGE, sandboxes
from osb_openai_agents import OsbSandboxClient, OsbSandboxClientOptions

OPTIONS = OsbSandboxClientOptions(image=IMAGE, resources={"cpu": "1", "memory": "512Mi"}, env={"WORD": "kept"})


@pytest.fixture
async def client(connection):
    return OsbSandboxClient()


async def test_commands_and_files(server, client):
    session = await client.create(options=OPTIONS)
    async with session:
        done = await session.exec("printf 'a\\nb\\n'; echo $WORD; pwd; echo wrong >&2; exit 3")
        assert (done.stdout, done.stderr, done.exit_code) == (b"a\nb\nkept\n/workspace\n", b"wrong\n", 3)
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60", timeout=1)
        await session.write(Path("deep/data.bin"), io.BytesIO(b"\x00\xff"))
        assert (await session.read(Path("deep/data.bin"))).read() == b"\x00\xff"
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("missing"))
        assert [Path(entry.path).name for entry in await session.ls("deep")] == ["data.bin"]
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path("/etc/passwd"))
        assert await session.running()
    await client.delete(session)
    assert sandboxes(server, framework="openai-agents") == []


async def test_a_workspace_moves_to_another_sandbox(server, client):
    first = await client.create(options=OPTIONS)
    second = await client.create(options=OPTIONS)
    try:
        async with first, second:
            await first.exec("mkdir -p src && echo moved > src/file && chmod 755 src/file && ln -s file src/link")
            await second.hydrate_workspace(await first.persist_workspace())
            told = await second.exec("cat src/link; stat -c %a src/file")
            assert told.stdout == b"moved\n755\n"
    finally:
        await client.delete(first)
        await client.delete(second)


async def test_a_session_is_found_again(client):
    session = await client.create(options=OPTIONS)
    async with session:
        await session.exec("echo here > file")
        payload = client.serialize_session_state(session.state)
        again = await client.resume(client.deserialize_session_state(payload))
        assert (await again.read(Path("file"))).read() == b"here\n"
    await client.delete(again)


async def test_an_agent_uses_it(server, client):
    from agents import Model, ModelResponse, Runner, Usage
    from agents.run import RunConfig
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        tools = None

        async def get_response(self, system_instructions, input, model_settings, tools, *rest, **more):
            type(self).tools = {tool.name for tool in tools}
            said = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
            if said:
                text = ResponseOutputText(text=str(said[-1]["output"]), annotations=[], type="output_text")
                item = ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
            else:
                item = ResponseFunctionToolCall(name="exec_command", arguments='{"cmd": "echo $((6 * 7))"}', call_id="1",
                                                type="function_call")
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *given, **more):
            raise NotImplementedError

    agent = SandboxAgent(name="worker", instructions="compute", model=Scripted())
    config = RunConfig(sandbox=SandboxRunConfig(client=client, options=OPTIONS), tracing_disabled=True)
    result = await Runner.run(agent, "what is six times seven?", run_config=config)
    assert "42" in result.final_output, (Scripted.tools, result.final_output)
    assert sandboxes(server, framework="openai-agents") == []
