"""The published command line `osb` 1.1.1, run as users run it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import IMAGE

OSB = Path(sys.executable).with_name("osb")
pytestmark = pytest.mark.skipif(not OSB.exists(), reason="the command line is published for 1.1.1 only")


@pytest.fixture
def osb(server, tmp_path):
    def run(*words, check=True, stdin=None):
        result = subprocess.run(
            [OSB, *words], env={**server.environment, "HOME": str(tmp_path)}, input=stdin,
            capture_output=True, text=True, timeout=120,
        )
        if check:
            assert result.returncode == 0, f"osb {' '.join(words)}\n{result.stdout}\n{result.stderr}"
        return result

    return run


@pytest.fixture
def made(osb):
    created = json.loads(osb("sandbox", "create", "-i", IMAGE, "-t", "10m", "-m", "by=cli",
                             "--resource", "cpu=1", "--resource", "memory=512Mi", "-o", "json").stdout)
    yield created["id"]
    osb("sandbox", "kill", created["id"], check=False)


def test_the_life_of_a_sandbox(osb, made):
    assert json.loads(osb("sandbox", "get", made, "-o", "json").stdout)["status"]["state"] == "Running"
    listed = osb("sandbox", "list", "-m", "by=cli", "-o", "json").stdout
    assert made in listed
    assert json.loads(osb("sandbox", "health", made, "-o", "json").stdout)["healthy"] is True
    assert made in osb("sandbox", "endpoint", made, "-p", "8080", "-o", "json").stdout
    osb("sandbox", "renew", made, "-t", "30m")
    osb("sandbox", "pause", made)
    assert json.loads(osb("sandbox", "get", made, "-o", "json").stdout)["status"]["state"] == "Paused"
    osb("sandbox", "resume", made)
    metrics = json.loads(osb("sandbox", "metrics", made, "-o", "json").stdout)
    assert metrics["memory_total_in_mib"] > 0
    osb("sandbox", "kill", made)
    assert osb("sandbox", "get", made, check=False).returncode == 1


def test_commands(osb, made):
    assert osb("command", "run", made, "-o", "raw", "--", "echo", "one").stdout.strip() == "one"
    lines = osb("command", "run", made, "-o", "raw", "--", "sh", "-c", "echo l1; echo l2").stdout
    assert lines.split() == ["l1", "l2"]
    assert osb("command", "run", made, "-o", "raw", "--", "sh", "-c", "exit 3", check=False).returncode != 0
    background = json.loads(osb("command", "run", made, "-d", "-o", "json", "--", "sleep", "600").stdout)
    execution = background.get("execution_id") or background.get("id")
    assert json.loads(osb("command", "status", made, execution, "-o", "json").stdout)["running"] is True
    osb("command", "logs", made, execution)
    osb("command", "interrupt", made, execution)
    session = json.loads(osb("command", "session", "create", made, "-o", "json").stdout)["session_id"]
    osb("command", "session", "run", made, session, "--", "export", "X=5")
    assert osb("command", "session", "run", made, session, "--", "printenv", "X").stdout.strip() == "5"
    osb("command", "session", "delete", made, session)


def test_files(osb, made, tmp_path):
    osb("file", "write", made, "/tmp/a.txt", "-c", "hello file", "--mode", "0644")
    assert osb("file", "cat", made, "/tmp/a.txt").stdout.strip() == "hello file"
    assert "/tmp/a.txt" in osb("file", "info", made, "/tmp/a.txt", "-o", "json").stdout
    osb("file", "replace", made, "/tmp/a.txt", "--old", "file", "--new", "world")
    osb("file", "mv", made, "/tmp/a.txt", "/tmp/b.txt")
    osb("file", "chmod", made, "/tmp/b.txt", "--mode", "0600")
    assert "/tmp/b.txt" in osb("file", "search", made, "/tmp", "-p", "b.*", "-o", "json").stdout
    osb("file", "download", made, "/tmp/b.txt", str(tmp_path / "b.txt"))
    assert (tmp_path / "b.txt").read_text() == "hello world"
    (tmp_path / "up.bin").write_bytes(bytes(range(256)))
    osb("file", "upload", made, str(tmp_path / "up.bin"), "/tmp/up.bin")
    osb("file", "download", made, "/tmp/up.bin", str(tmp_path / "down.bin"))
    assert (tmp_path / "down.bin").read_bytes() == bytes(range(256))
    osb("file", "mkdir", made, "/tmp/dir")
    osb("file", "rmdir", made, "/tmp/dir")
    osb("file", "rm", made, "/tmp/b.txt")
    assert osb("file", "cat", made, "/tmp/b.txt", check=False).returncode == 1


def test_snapshots_and_diagnostics(osb, made):
    snapshot = json.loads(osb("snapshot", "create", made, "--name", "cli", "-o", "json").stdout)["id"]
    assert snapshot in osb("snapshot", "list", "--sandbox-id", made, "-o", "json").stdout
    state = ""
    while state in ("", "Creating"):
        state = json.loads(osb("snapshot", "get", snapshot, "-o", "json").stdout)["status"]["state"]
    assert state == "Ready"
    osb("snapshot", "delete", snapshot)
    assert osb("diagnostics", "logs", made, "-s", "container").returncode == 0
    assert osb("diagnostics", "events", made, "-s", "runtime").stdout
    for verb in ("inspect", "summary", "logs", "events"):
        assert osb("devops", verb, made).returncode == 0
