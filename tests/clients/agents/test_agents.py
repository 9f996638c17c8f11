"""Coding agents, set up as docs/agents.md says: each reads the registration, and those that can tell
say that they are connected."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
sys.path.insert(0, str(HERE.parent / "mcp"))
import guide  # noqa: E402

spec = importlib.util.spec_from_file_location("lifecycle_conftest", HERE.parent / "lifecycle/conftest.py")
lifecycle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lifecycle)
server = lifecycle.server

# They start Node and read their own settings; this only keeps a broken one from hanging.
DEADLINE_SECONDS = 120
FOLDERS = {"Claude Code": "claude-code", "Codex": "codex", "Gemini CLI": "gemini-cli"}
# What an agent prints that has spoken to the server. Codex only tells what is registered.
SAYS = {"Claude Code": "Connected", "Codex": "enabled", "Gemini CLI": "Connected"}
# Where a block of settings goes that is for everybody's home.
HOMES = {"Codex": ".codex/config.toml", "Gemini CLI": ".gemini/settings.json"}


@pytest.fixture
def place(tmp_path, server):
    """A home, a project, `osb` and the agents on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/osb").symlink_to(lifecycle.OSB)
    agents = [str(REPO / ".tools/agents" / folder / "node_modules/.bin") for folder in FOLDERS.values()]
    return {
        "HOME": str(tmp_path),
        "PATH": ":".join([str(tmp_path / "bin"), *agents, os.environ["PATH"]]),
        "TERM": "dumb",
        # As the answer to the question that it asks in a new folder.
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def run(line, place):
    done = subprocess.run(["bash", "-c", line], env=place, cwd=place["HOME"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{line}\n{said}"
    return said


def own(server):
    return {"localhost:8080": server.address, "YOUR-KEY": lifecycle.API_KEY}


@pytest.mark.parametrize("agent", FOLDERS)
def test_registered_by_command(server, place, agent):
    for block in guide.blocks():
        if block.heading == "Say where the server is":
            run(block.filled(own(server)), place)
    said = [run(line, place) for line in guide.commands(agent)][-1]
    assert "sandboxes" in said and SAYS[agent] in said, said
    assert "unknown format" not in said, said


@pytest.mark.parametrize("agent", HOMES)
def test_registered_by_settings(server, place, agent):
    [block] = [block for block in guide.settings() if block.heading == agent]
    path = Path(place["HOME"]) / HOMES[agent]
    path.parent.mkdir()
    path.write_text(block.filled(own(server)))
    listing = guide.commands(agent)[-1]
    said = run(listing, place)
    assert "sandboxes" in said and SAYS[agent] in said, said
