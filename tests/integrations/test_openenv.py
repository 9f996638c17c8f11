"""OpenEnv with our adapter: an environment's server in a sandbox, driven by OpenEnv's own client."""

import sysconfig

import pytest
from conftest import IMAGE, sandboxes
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from osb import Sandbox
from osb_openenv import OsbProvider

APP = """
import os
from openenv.core.env_server import Environment, create_fastapi_app
from openenv.core.env_server.types import Action, Observation, State

class Say(Action):
    text: str

class Heard(Observation):
    text: str = ""

class Echo(Environment):
    count = 0

    def reset(self, seed=None, episode_id=None, **more):
        self.count = 0
        return Heard(text=os.environ["GREETING"])

    def step(self, action, timeout_s=None, **more):
        self.count += 1
        return Heard(text=action.text.upper(), reward=1.0, done=self.count == 2)

    @property
    def state(self):
        return State(episode_id="e", step_count=self.count)

app = create_fastapi_app(Echo, Say, Heard)
"""
COMMAND = "exec python3 -m uvicorn server.app:app --host 127.0.0.1 --port {port}"


class Client(EnvClient):
    def _step_payload(self, action):
        return action

    def _parse_result(self, payload):
        return StepResult(observation=payload["observation"], reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload):
        return payload


@pytest.fixture(scope="session")
def snapshot(connection):
    """An environment as an image has one: its packages and its server."""
    with Sandbox.create(IMAGE) as sandbox:
        sandbox.files.upload_directory(sysconfig.get_path("purelib"), "/opt/packages")
        sandbox.files.write("/app/env/server/app.py", APP)
        return sandbox.snapshot("openenv").id


def provider(snapshot, env=None, **more):
    env = {"PYTHONPATH": "/opt/packages", **(env or {})}
    return OsbProvider(snapshot=snapshot, command=COMMAND, cwd="/app/env", env=env, **more)


def test_an_environment_is_driven_by_openenvs_client(snapshot, connection):
    with provider(snapshot, metadata={"test": "driven"}) as ours:
        address = ours.start_container(env_vars={"GREETING": "hello"})
        ours.wait_for_ready(address, timeout_s=60)
        with Client(base_url=address).sync() as env:
            first = env.reset()
            assert (first.observation["text"], first.done) == ("hello", False)
            step = env.step({"text": "ünïcode"})
            assert (step.observation["text"], step.reward, step.done) == ("ÜNÏCODE", 1.0, False)
            assert env.step({"text": "b"}).done
            assert env.state()["step_count"] == 2
        assert len(sandboxes(connection, test="driven")) == 1
        with pytest.raises(RuntimeError, match="already"):
            ours.start_container()
    assert sandboxes(connection, test="driven") == []


def test_the_client_starts_and_ends_its_provider(snapshot, connection):
    ours = provider(snapshot, env={"GREETING": "owned"}, metadata={"test": "owned"})
    with Client(provider=ours).sync() as env:
        assert env.reset().observation["text"] == "owned"
        assert len(sandboxes(connection, test="owned")) == 1
    assert sandboxes(connection, test="owned") == []


def test_a_server_that_ends_says_why(connection):
    with OsbProvider(IMAGE, command="echo no such environment; exit 3", metadata={"test": "ends"}) as ours:
        address = ours.start_container()
        with pytest.raises(RuntimeError, match="no such environment"):
            ours.wait_for_ready(address)
    with OsbProvider(IMAGE, command="echo busy; exec sleep 600") as ours:
        address = ours.start_container()
        with pytest.raises(TimeoutError, match="busy"):
            ours.wait_for_ready(address, timeout_s=1)
    with pytest.raises(RuntimeError, match="did not start"):
        OsbProvider("127.0.0.1:1/no/such:image").start_container()
    assert sandboxes(connection, test="ends") == []
