"""Kimi Code in a sandbox of the image `opensandbox/agents` (`make image NAME=agents`): it gets a prompt, does what its model
asks for, and what it wrote is read from the sandbox.

With KIMI_MODEL_API_KEY set the prompt goes to the real model (KIMI_MODEL_BASE_URL and KIMI_MODEL_NAME are passed on). Without, the fake model of ../fake-model runs inside the
sandbox and asks for one command. Nothing limits here what the agent reaches over the network, and the key is in the sandbox.

Prints:
    The command said: written by the agent
    agent.txt: written by the agent
"""

import os
from datetime import timedelta
from pathlib import Path

from opensandbox.config import ConnectionConfigSync
from opensandbox.models.execd import RunCommandOpts
from opensandbox.sync import SandboxSync

FAKE = Path(__file__).resolve().parents[1] / "fake-model/model.py"
PROMPT = os.environ.get("PROMPT", "Write a line into agent.txt and tell what it says.")
COMMAND = 'kimi -p "$PROMPT"'

is_fake = not os.environ.get("KIMI_MODEL_API_KEY")
env = {"KIMI_MODEL_BASE_URL": "http://127.0.0.1:8000/v1", "KIMI_MODEL_API_KEY": "none", "KIMI_MODEL_NAME": "fake"} if is_fake else {
    name: os.environ[name] for name in ("KIMI_MODEL_API_KEY", "KIMI_MODEL_BASE_URL", "KIMI_MODEL_NAME") if name in os.environ
}
sandbox = SandboxSync.create(
    os.environ.get("SANDBOX_IMAGE", "opensandbox/agents:latest"), entrypoint=["/entrypoint"], env={**env, **{}},
    resource={"cpu": "2", "memory": "3Gi"},
    connection_config=ConnectionConfigSync(
        domain=os.environ.get("SANDBOX_DOMAIN"), api_key=os.environ.get("SANDBOX_API_KEY"),
        request_timeout=timedelta(minutes=5)))
try:
    if is_fake:
        sandbox.files.write_file("/opt/model.py", FAKE.read_bytes())
        sandbox.commands.run("mkfifo /tmp/up; python3 /opt/model.py >/tmp/up 2>&1 & read line </tmp/up")
    said = sandbox.commands.run(COMMAND, opts=RunCommandOpts(
        working_directory="/workspace", envs={"PROMPT": PROMPT}, timeout=timedelta(minutes=4)))
    text = "".join(message.text for message in said.logs.stdout)
    print(text.replace("\u2022 ", "").strip() if said.exit_code == 0 else f"failed: {text}{said.logs.stderr}")
    print("agent.txt:", sandbox.files.read_file("/workspace/agent.txt").strip())
finally:
    sandbox.kill()
    sandbox.close()
