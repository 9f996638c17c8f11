"""mini-swe-agent with our adapter: found by its dotted name, and its agent with a scripted model mends a program."""

import pytest
from conftest import IMAGE, sandboxes
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

SETTINGS = {"environment_class": "osb_mini_swe_agent.OsbEnvironment", "image": IMAGE, "cwd": "/tmp",
            "resources": {"cpu": "1", "memory": "512Mi"}, "env": {"WORD": "kept"}}


@pytest.fixture
def environment(connection):
    environment = get_environment(dict(SETTINGS))
    yield environment
    environment.cleanup()


def test_commands(environment):
    done = environment.execute({"command": "printf 'a\\nb\\n'; echo $WORD; pwd; echo wrong >&2; exit 3"})
    assert (done["output"].splitlines(), done["returncode"]) == (["a", "b", "kept", "/tmp", "wrong"], 3)
    late = environment.execute({"command": "echo before; sleep 60"}, timeout=1)
    assert late["output"] == "before\n" and late["returncode"] == -1 and "within 1 s" in late["exception_info"]
    assert environment.get_template_vars()["system"] == "Linux"


def test_an_agent_mends_a_program(server, environment):
    environment.execute({"command": "echo 'print(6 * 9)' > answer.py"})
    commands = ["sed -i 's/9/7/' answer.py && python3 answer.py",
                "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat answer.py"]
    model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
    agent = DefaultAgent(model, environment, system_template="mend it", instance_template="{{task}}")
    assert agent.run("make answer.py print 42")["submission"] == "print(6 * 7)\n"
    assert any("42" in str(message["content"]) for message in agent.messages)
    environment.cleanup()
    assert sandboxes(server, framework="mini-swe-agent") == []
