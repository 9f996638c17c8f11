"""Our `osb` and the published one, against one real server on the embedded runtime.

The server is that of tests/clients/lifecycle; every command gets a home of its own, so that no
settings of the machine are read.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import Terminal

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
spec = importlib.util.spec_from_file_location(
    "lifecycle_conftest", HERE.parent / "clients/lifecycle/conftest.py"
)
lifecycle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lifecycle)
server = lifecycle.server

OURS = Path(lifecycle.OSB)
PUBLISHED = Path(sys.executable).with_name("osb")
IMAGE = lifecycle.IMAGE
# No command of these tests takes this long; it only keeps a broken one from hanging.
DEADLINE_SECONDS = 60


class Osb:
    """One program, with a server and a home."""

    def __init__(self, program, server, home):
        self.program = program
        self.home = home
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OPEN_SANDBOX_", "OPENSANDBOX_"))},
            "OPEN_SANDBOX_DOMAIN": server.address,
            "OPEN_SANDBOX_API_KEY": lifecycle.API_KEY,
            "HOME": str(home),
            "TERM": "xterm-256color",
        }

    def __call__(self, *words, code=0, stdin=None, env=None, text=True, cwd=None):
        result = subprocess.run(
            [self.program, *map(str, words)], env={**self.environment, **(env or {})}, input=stdin,
            capture_output=True, text=text, timeout=DEADLINE_SECONDS, cwd=cwd,
        )
        said = f"osb {' '.join(map(str, words))}\n-> {result.returncode}\n{result.stdout}\n{result.stderr}"
        if code is not None:
            assert result.returncode == code, said
        assert "panicked" not in str(result.stderr), said
        return result

    def json(self, *words, **options):
        # Behind -- options are not ours.
        at = words.index("--") if "--" in words else len(words)
        return json.loads(self(*words[:at], "-o", "json", *words[at:], **options).stdout)

    def at_terminal(self, *words, columns=80, rows=24, env=None):
        return Terminal([self.program, *map(str, words)], {**self.environment, **(env or {})}, columns, rows)


@pytest.fixture
def osb(server, tmp_path):
    return Osb(OURS, server, tmp_path)


@pytest.fixture
def published(server, tmp_path):
    return Osb(PUBLISHED, server, tmp_path)


@pytest.fixture(scope="session")
def shared(server, tmp_path_factory):
    """A sandbox for tests that leave it as it was."""
    osb = Osb(OURS, server, tmp_path_factory.mktemp("home"))
    made = osb.json("sandbox", "create", "-i", IMAGE, "-t", "20m", "-m", "for=shared",
                    "--resource", "cpu=1", "--resource", "memory=512Mi")["id"]
    yield made
    osb("rm", made, code=None)


@pytest.fixture
def made(osb):
    """A sandbox of the test's own."""
    created = osb.json("sandbox", "create", "-i", IMAGE, "-t", "10m", "-m", "by=cli",
                       "--resource", "cpu=1", "--resource", "memory=512Mi")["id"]
    yield created
    osb("rm", created, code=None)
