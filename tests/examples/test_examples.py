"""Each example prints what stands behind "Prints:" at its top."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import lifecycle

REPO = Path(__file__).resolve().parents[2]
EXAMPLES = REPO / "examples"
ELSEWHERE = {
    # Run by the Rust SDK's own suite (sdks/rust/tests/sdk/examples.rs).
    "rust/first_sandbox.rs",
    # Run by others, inside their sandboxes.
    "rl-training/rollout.py", "fake-model/model.py",
    # Run by tests/environments, which builds their images.
    *(f"{name}/main.py" for name in ("claude-code", "codex-cli", "gemini-cli", "qwen-code", "kimi-cli", "chrome",
                                     "desktop", "playwright", "vscode")),
    # Run by tests/integrations, which installs their frameworks.
    "google-adk/main.py", "langgraph/main.py",
}
PROGRAMS = sorted(
    str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.*")
    if path.suffix != ".md" and "__pycache__" not in path.parts
)
DEADLINE_SECONDS = 60


def expected(text):
    """The lines behind `Prints:`, up to the first that is not indented further."""
    found = re.search(r"^(#?) ?Prints:\n((?:\1   ? .*\n)+)", text, re.M)
    assert found, "the example does not say what it prints"
    lines = [line.removeprefix(found[1]) for line in found[2].splitlines()]
    return textwrap.dedent("\n".join(lines)).strip()


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in ELSEWHERE])
def test_example(name, server):
    path = EXAMPLES / name
    command = [sys.executable, path] if path.suffix == ".py" else [path]
    environment = {**server.environment, "OSB_BIN": str(lifecycle.OSB),
                   "PYTHONPATH": str(REPO / "sdks/python/src")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.strip() == expected(path.read_text())


def test_every_example_is_in_the_index():
    index = (EXAMPLES / "README.md").read_text()
    assert [name for name in PROGRAMS if f"({name})" not in index] == []
