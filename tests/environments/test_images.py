"""The other images: each starts by its entrypoint and has what its name promises."""

import io
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import EDITOR, KEY, Environment
from PIL import Image

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WANTED = os.environ["OSB_TEST_IMAGES"].split()


def needs(name):
    return pytest.mark.skipif(name not in WANTED, reason=f"OSB_TEST_IMAGES leaves {name} out")


@pytest.fixture
def environment(server, request):
    environment = Environment(server, f"opensandbox/{request.param}:latest")
    yield environment
    environment.close()


@needs("desktop")
@pytest.mark.parametrize("environment", ["desktop"], indirect=True)
def test_the_desktop_is_xfce(environment):
    environment.ready()
    deadline = time.monotonic() + 60
    # The panel and the desktop are windows of the session.
    while not {"Xfce4-panel", "Xfdesktop"} <= {
        window["class"] for window in environment.json("GET", "/desktop/windows")["windows"]
    }:
        assert time.monotonic() < deadline, (environment.json("GET", "/desktop/windows"), environment.logs())
        environment.json("GET", "/desktop/still?quiet_ms=200&timeout_ms=2000")
    status, _, body = environment.ask("GET", "/desktop/screenshot")
    assert status == 200
    assert len(Image.open(io.BytesIO(body)).convert("RGB").getcolors(1 << 24)) > 50, "more than a plain colour"


@needs("vscode")
@pytest.mark.parametrize("environment", ["vscode"], indirect=True)
def test_the_editor_is_drawn_in_a_browser(environment, second_chromium, playwright):
    environment.ready("/healthz", EDITOR)
    environment.run("echo 'shown in the editor' > /workspace/readme.txt")
    other = playwright.chromium.launch(executable_path=second_chromium)
    try:
        page = other.new_page()
        page.goto(environment.link("?folder=/workspace", EDITOR))
        page.wait_for_selector(".monaco-workbench", timeout=90_000)
        page.get_by_text("readme.txt").first.dblclick(timeout=60_000)
        page.get_by_text("shown in the editor").first.wait_for(timeout=60_000)
    finally:
        other.close()


@needs("agents")
@pytest.mark.parametrize("environment", ["agents"], indirect=True)
def test_every_agent_runs(environment):
    for command in ("claude", "codex", "gemini", "qwen", "kimi", "node", "git", "rg", "python"):
        said = environment.run(f"{command} --version 2>&1; echo code $?")
        assert said.rstrip().endswith("code 0") and any(c.isdigit() for c in said), (command, said)
    assert environment.run("node --version").startswith("v24.")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=needs(image)) for image, names in {
        "agents": ["claude-code", "codex-cli", "gemini-cli", "qwen-code", "kimi-cli"],
        "browser": ["chrome", "playwright"], "desktop": ["desktop"], "vscode": ["vscode"],
    }.items() for name in names
])
def test_an_example_prints_what_it_says(server, name):
    """Those of agents have a fake model in the sandbox, which asks for one command."""
    program = EXAMPLES / name / "main.py"
    # A key of whoever runs the tests would ask a real model.
    environment = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_AUTH_TOKEN"))}
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=150,
                         env={**environment, "SANDBOX_DOMAIN": server, "SANDBOX_API_KEY": KEY})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    promised = re.search(r"^Prints:\n((?:    .*\n)+)", program.read_text(), re.M)[1]
    assert ran.stdout == textwrap.dedent(promised), ran.stderr


# What each says first that has no key; Codex asks for the one that its settings name.
CODEX = """mkdir -p ~/.codex && cat >~/.codex/config.toml <<'TOML'
model = "none"
model_provider = "chosen"
[model_providers.chosen]
name = "chosen"
base_url = "http://127.0.0.1:1/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
TOML
codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox hello </dev/null"""
WITHOUT_KEY = {
    "claude -p hello --dangerously-skip-permissions": "Not logged in", CODEX: "OPENAI_API_KEY",
    "gemini --yolo -p hello": "GEMINI_API_KEY", "qwen --yolo -p hello": "auth type", "kimi -p hello": "No model configured",
}


@needs("agents")
@pytest.mark.parametrize("environment", ["agents"], indirect=True)
def test_an_agent_without_a_key_says_so_and_ends(environment):
    for command, expected in WITHOUT_KEY.items():
        said = environment.run(f"cd /workspace && ({command}) 2>&1; echo code $?")
        assert expected in said and not said.rstrip().endswith("code 0"), (command, said)


@needs("rl")
@pytest.mark.parametrize("environment", ["rl"], indirect=True)
def test_an_episode_and_a_gradient(environment):
    said = environment.run("""python - <<'PY'
import gymnasium, numpy, torch
space = gymnasium.make("CartPole-v1")
state, _ = space.reset(seed=7)
layer = torch.nn.Linear(4, 2)
layer(torch.from_numpy(state)).sum().backward()
total, over = 0, False
while not over:
    state, reward, done, cut, _ = space.step(int(state[2] > 0))
    total, over = total + reward, done or cut
print(layer.weight.grad.shape == (2, 4), total > 10)
PY""")
    assert said.strip() == "True True", said
