"""The Docker half of tests/cli/habits.py: what the table says is what a real engine does."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
from habits import LINES, Shop, archive


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    home = tmp_path_factory.mktemp("habits")
    archive(home / "images.tar")
    subprocess.run(["docker", "load", "-q", "-i", home / "images.tar"], check=True)
    directory = home / "shared"
    directory.mkdir()
    return Shop("docker", os.environ, directory, free_port)


@pytest.mark.parametrize("line", LINES, ids=str)
def test_docker_does_what_the_table_says(shop, line):
    shop.check(line)
