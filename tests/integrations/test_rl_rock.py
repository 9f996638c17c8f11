"""rl-rock as published: its operator makes sandboxes, its backend works in them."""

import pytest
from conftest import IMAGE, KEY, sandboxes
from rock.actions.sandbox.response import State
from rock.admin.proto.request import (
    SandboxBashAction, SandboxCommand, SandboxCreateBashSessionRequest, SandboxReadFileRequest, SandboxWriteFileRequest,
)
from rock.config import OpenSandboxConfig
from rock.deployments.config import DockerDeploymentConfig
from rock.sandbox.operator.opensandbox.client import OpenSandboxClient
from rock.sandbox.operator.opensandbox.operator import OpenSandboxOperator
from rock.sandbox.service.backends.opensandbox import OpenSandboxBackend


@pytest.fixture
async def client(server):
    client = OpenSandboxClient(OpenSandboxConfig(
        endpoint=server.address, api_key=KEY, protocol="http", use_server_proxy=True))
    yield client
    await client.aclose()


async def test_a_rollout(server, client):
    operator, backend = OpenSandboxOperator(client._config, client=client), OpenSandboxBackend(client)
    deployment = DockerDeploymentConfig(image=IMAGE, container_name="rollout-1", cpus=1, memory="512m")
    info = await operator.submit(deployment)
    deployment.extended_params = info["extended_params"]
    try:
        assert await backend.get_state(info) == State.RUNNING
        done = await backend.execute("rollout-1", info, SandboxCommand(
            sandbox_id="rollout-1", command=["sh", "-c", "printf 'a\\nb\\n'; exit 3"]))
        assert (done.stdout, done.exit_code) == ("a\nb\n", 3)
        session, _ = await backend.create_session("rollout-1", info, SandboxCreateBashSessionRequest(
            sandbox_id="rollout-1", env={"WORD": "kept"}))
        act = lambda command: backend.run_session("rollout-1", info, session, SandboxBashAction(
            sandbox_id="rollout-1", command=command))
        await act("cd /tmp")
        assert (await act("echo $WORD; pwd")).output == "kept\n/tmp\n"
        await backend.close_session("rollout-1", info, session)
        # A file that is not there gets the usual rights, one that is there keeps its own.
        for text in ("first", "second"):
            await backend.write_file("rollout-1", info, SandboxWriteFileRequest(
                sandbox_id="rollout-1", path="/tmp/x", content=text))
        found = await backend.read_file("rollout-1", info, SandboxReadFileRequest(sandbox_id="rollout-1", path="/tmp/x"))
        assert found.content == "second"
    finally:
        assert await operator.delete(deployment)
    assert sandboxes(server) == []
