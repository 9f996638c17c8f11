"""The first use of an image, over a registry that is slow: seen, waited for, and given up at any moment."""

import signal
import subprocess

import pytest
from conftest import DEADLINE_SECONDS
from registry import Registry


@pytest.fixture
def registry():
    registry = Registry()
    yield registry
    registry.close()


def left(osb):
    return [item["id"] for item in osb.json("ls", "-m", "first=use")["items"]]


def test_a_run_shows_progress_and_waits_while_bytes_move(osb, registry):
    words = ["run", "-l", "first=use", registry.reference, "--", "echo", "here-at-last"]
    with osb.at_terminal(*words, columns=100) as run:
        run.expect("/slow/busybox:1")
        registry.more()
        run.expect("MiB")
        registry.go()
        run.expect("here-at-last")
        assert run.end() == 0
    assert left(osb) == []


@pytest.mark.parametrize("words", (
    ["run", "-l", "first=use", "REFERENCE", "--", "echo", "never"],
    ["shell", "--image", "REFERENCE"],
    ["code", "--image", "REFERENCE", "-l", "bash"],
    ["sandbox", "create", "-m", "first=use", "-i", "REFERENCE"],
), ids=("run", "shell", "code", "create"))
def test_an_interrupt_gives_the_image_up(osb, registry, words):
    before = {item["id"] for item in osb.json("ls")["items"]}
    words = [registry.reference if word == "REFERENCE" else word for word in words]
    with osb.at_terminal(*words, columns=100) as run:
        run.expect("/slow/busybox:1")
        assert registry.asked.wait(DEADLINE_SECONDS)
        run.type(b"\x03")
        assert run.end() == 130
    assert {item["id"] for item in osb.json("ls")["items"]} <= before


def test_in_a_pipe_a_line_says_what_is_waited_for(osb, registry):
    run = subprocess.Popen(
        [osb.program, "run", "-l", "first=use", registry.reference, "--", "echo", "done"],
        env=osb.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert registry.reference in run.stderr.readline()
    registry.go()
    assert run.communicate(timeout=DEADLINE_SECONDS) == ("done\n", "")
    assert run.returncode == 0


def test_a_stopped_run_in_a_pipe_leaves_nothing(osb, registry):
    run = subprocess.Popen(
        [osb.program, "run", "-l", "first=use", registry.reference, "--", "echo", "never"],
        env=osb.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    assert registry.reference in run.stderr.readline()
    run.send_signal(signal.SIGTERM)
    assert run.wait(DEADLINE_SECONDS) == 143
    assert left(osb) == []


def test_an_image_that_is_not_there_says_why(osb, registry):
    nowhere = registry.reference.split("/")[0].rsplit(":", 1)[0] + ":1/nothing:1"
    said = osb("run", nowhere, "--", "true", code=125).stderr
    assert "error: " in said and "127.0.0.1:1" in said
