"""Inspect with our adapter: its own suite for sandboxes as root and as a user, and an evaluation with a scripted
model that uses the sandbox by a tool."""

import pytest
from conftest import IMAGE, sandboxes
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from osb_inspect import OsbSandboxConfig, OsbSandboxEnvironment

# Root reads and writes what nobody may: there is no error to see.
ROOT_MAY = {
    "test_read_file_not_allowed", "test_write_text_file_without_permissions",
    "test_write_binary_file_without_permissions",
}
PREPARE = """mkdir -p /etc/skel /etc/pam.d && touch /etc/adduser.conf
for kind in auth account password session; do echo "$kind required pam_permit.so"; done > /etc/pam.d/other"""
CONFIGS = {
    "root": OsbSandboxConfig(image=IMAGE),
    # A user of every Debian.
    "user": OsbSandboxConfig(image=IMAGE, user="nobody", workdir="/srv/work", env={"HOME": "/srv/work"}),
}


@pytest.fixture(scope="module", params=CONFIGS)
async def environment(request, connection):
    config = CONFIGS[request.param]
    made = await OsbSandboxEnvironment.sample_init("self_check", config, {})
    # The image has little of the machine's /etc; adduser, which the suite calls, asks for these.
    prepared = await made["default"].exec(["sh", "-c", PREPARE], user="root")
    assert prepared.success, prepared.stderr
    yield request.param, made["default"]
    await OsbSandboxEnvironment.sample_cleanup("self_check", config, made, False)


@pytest.fixture
def sandbox_env(request, environment):
    name, sandbox = environment
    if name == "root" and request.node.originalname in ROOT_MAY:
        request.node.add_marker(pytest.mark.xfail(reason="root may read and write everything", strict=True))
    return sandbox


def test_an_evaluation_uses_the_sandbox(server, tmp_path):
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import bash

    # Those of the suite above may be there still.
    before = sandboxes(server, framework="inspect")
    (tmp_path / "sandbox.toml").write_text(f'image = "{IMAGE}"\nmemory = "512Mi"\n')
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat numbers.txt | wc -l"}),
        ModelOutput.from_content("mockllm/model", "the file has 3 lines"),
    ]
    for output in outputs:
        # What is not said is counted, by a table from the network.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    model = get_model("mockllm/model", custom_outputs=outputs)
    task = Task(
        dataset=[Sample(input="how many lines?", target="3", files={"numbers.txt": "1\n2\n3\n"})],
        solver=[use_tools(bash()), generate()], scorer=includes(),
        sandbox=("osb", str(tmp_path / "sandbox.toml")))
    [log] = eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none", log_level="error")
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    [told] = [message for message in log.samples[0].messages if message.role == "tool"]
    assert told.text.strip() == "3" and told.error is None, told
    assert sandboxes(server, framework="inspect") == before
