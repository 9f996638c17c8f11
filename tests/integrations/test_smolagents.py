"""smolagents with our adapter: its agent with a scripted model computes in a sandbox."""

import pytest
from conftest import IMAGE, sandboxes
from osb_smolagents import OsbExecutor
from smolagents import CodeAgent, tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentError

# No test fetches packages from inside a sandbox.
OPTIONS = {"resources": {"cpu": "1", "memory": "512Mi"}, "env": {"PIP_NO_INDEX": "1", "PYTHONPATH": "/opt/modules"}}
# smolagents imports these before an agent's first step, to tell their values from others; the image has neither.
STAND_INS = {"/opt/modules/numpy.py": "ndarray = integer = floating = type('None', (), {})\n",
             "/opt/modules/PIL/__init__.py": "", "/opt/modules/PIL/Image.py": "Image = type('None', (), {})\n"}


@pytest.fixture
def executor(connection):
    with OsbExecutor(IMAGE, **OPTIONS) as executor:
        yield executor


@tool
def times_seven(number: int) -> int:
    """Multiplies by seven.

    Args:
        number: what to multiply
    """
    return number * 7


class Scripted(Model):
    """Says one piece of code after the other, and keeps what it was asked."""

    def __init__(self, *pieces):
        super().__init__(model_id="scripted")
        self.pieces, self.asked = list(pieces), []

    def generate(self, messages, **options):
        self.asked.append(messages)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.pieces.pop(0)}\n</code>")


def test_code_remembers_and_its_errors_are_told(executor):
    executor.send_variables({"start": 40})
    assert executor("print('said'); value = start + 2; value").logs == "said\n"
    assert executor("value").output == "42"
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        executor("1 / 0")
    assert executor("value").output == "42", "an error does not end the context"


def test_packages_that_cannot_be_had_are_told(connection):
    with pytest.raises(AgentError, match="pip could not install no-such-package"):
        OsbExecutor(IMAGE, ["no-such-package"], **OPTIONS)


def test_an_agent_computes_in_the_sandbox(server):
    with OsbExecutor(IMAGE, **OPTIONS) as executor:
        for path, text in STAND_INS.items():
            executor._sandbox.files.write(path, text)
        executor("import importlib; importlib.invalidate_caches()")
        model = Scripted("found = times_seven(6)\nprint('found', found)", "final_answer(found)")
        agent = CodeAgent(tools=[times_seven], model=model, executor=executor, max_steps=3)
        assert agent.run("what is six times seven?") == 42
        assert "found 42" in str(model.asked[1]), "the model saw what its code printed"
    assert sandboxes(server, framework="smolagents") == []
