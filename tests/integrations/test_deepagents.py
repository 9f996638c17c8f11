"""deepagents with our adapter: LangChain's own suite for sandboxes, and an agent with a scripted model."""

import pytest
from conftest import IMAGE, run_example
from langchain_tests.integration_tests import SandboxIntegrationTests
from osb import Sandbox
from osb_deepagents import OsbSandbox


PATH = {"PATH": "/opt/names:/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture(scope="module")
def sandbox_of_ours(connection):
    with Sandbox.create(IMAGE, env=PATH, resources={"cpu": "1", "memory": "512Mi"}) as sandbox:
        # The suite calls the program by this name, which Debian has not, and /usr is the machine's.
        sandbox.commands.run("mkdir -p /opt/names && ln -s /usr/bin/python3 /opt/names/python")
        yield sandbox


class TestOsb(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, sandbox_of_ours):
        yield OsbSandbox(sandbox_of_ours)


def test_a_command_out_of_time_says_so(sandbox_of_ours):
    done = OsbSandbox(sandbox_of_ours).execute("echo before; sleep 60", timeout=1)
    assert done.exit_code == 124 and done.output == "before\n\nthe command did not end within 1 s"


def test_output_beyond_the_bound_is_told(sandbox_of_ours):
    done = OsbSandbox(sandbox_of_ours).execute("head -c 11000000 /dev/zero | tr '\\0' x")
    assert done.truncated and len(done.output) == 10 * 1024 * 1024 and done.exit_code == 0


def test_an_agent_uses_it(sandbox_of_ours):
    from deepagents import create_deep_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools, **options):
            return self

    call = {"name": "execute", "args": {"command": "echo $((6 * 7))"}, "id": "1"}
    model = Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]))
    agent = create_deep_agent(model=model, backend=OsbSandbox(sandbox_of_ours))
    messages = agent.invoke({"messages": [{"role": "user", "content": "what is six times seven?"}]})["messages"]
    assert "42" in messages[-2].content and messages[-1].content == "done"


def test_the_example_of_langgraph_prints_what_it_says():
    run_example("langgraph")
