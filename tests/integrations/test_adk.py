"""google-adk as published: `OpenSandboxEnvironment`, by itself and as the hands of an agent."""

import time

import pytest
from conftest import IMAGE, run_example, sandboxes
from google.adk.integrations.opensandbox import OpenSandboxEnvironment


@pytest.fixture
async def environment():
    environment = OpenSandboxEnvironment(image=IMAGE, env_vars={"WORD": "kept"})
    await environment.initialize()
    yield environment
    await environment.close()


async def test_output_keeps_its_lines(environment):
    done = await environment.execute("printf 'a\\nb\\nc\\n'; echo wrong >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code, done.timed_out) == ("a\nb\nc\n", "wrong\n", 3, False)
    assert (await environment.execute("echo $WORD")).stdout == "kept\n"


async def test_a_command_runs_out_of_its_time(environment):
    begun = time.monotonic()
    done = await environment.execute("sleep 60", timeout=1)
    assert done.timed_out and done.exit_code != 0 and time.monotonic() - begun < 30


async def test_files(environment):
    await environment.write_file("deep/er/data.bin", b"\x00\xff")
    assert await environment.read_file("deep/er/data.bin") == b"\x00\xff"
    with pytest.raises(FileNotFoundError):
        await environment.read_file("missing")


async def test_closing_deletes_the_sandbox(server):
    environment = OpenSandboxEnvironment(image=IMAGE, metadata={"test": "closing"})
    await environment.initialize()
    assert len(sandboxes(server, test="closing")) == 1
    await environment.close()
    assert sandboxes(server, test="closing") == []


async def test_an_agent_uses_it_by_a_tool(environment):
    """A model that asks for one command and then repeats what it was told."""
    from google.adk.agents import LlmAgent
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    class Scripted(BaseLlm):
        async def generate_content_async(self, llm_request, stream=False):
            answer = llm_request.contents[-1].parts[0].function_response
            part = types.Part(text=f"it said {answer.response['result'].strip()}") if answer else types.Part(
                function_call=types.FunctionCall(name="shell", args={"command": "echo $((6 * 7))"}))
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    async def shell(command: str) -> str:
        """Runs a command."""
        return (await environment.execute(command)).stdout

    runner = InMemoryRunner(agent=LlmAgent(name="worker", model=Scripted(model="scripted"), tools=[shell]))
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="somebody")
    said = [
        part.text async for event in runner.run_async(
            user_id="somebody", session_id=session.id,
            new_message=types.Content(role="user", parts=[types.Part(text="what is six times seven?")]))
        for part in event.content.parts if part.text
    ]
    assert said == ["it said 42"]


def test_the_example_prints_what_it_says():
    run_example("google-adk")
