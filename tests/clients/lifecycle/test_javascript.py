"""The published JavaScript SDK, run by node's own test runner against the same server."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BACKEND, REPO, newer_than_0_1

SUITE = Path(__file__).parent / "js"
# Below where `run` has installed the package, in a place of this server's own: the same suite may
# run on another backend at the same time.
PLACE = REPO / ".tools" / "javascript-client" / BACKEND
pytestmark = pytest.mark.skipif("not newer_than_0_1()", reason="runs once, beside the newest Python SDK")


def test_javascript_sdk(server):
    PLACE.mkdir(exist_ok=True)
    shutil.copy(SUITE / "sandbox.test.mjs", PLACE)
    result = subprocess.run(
        ["node", "--test", "--test-reporter=spec", "sandbox.test.mjs"], cwd=PLACE,
        env=server.environment, capture_output=True, text=True, timeout=300,
    )
    print(result.stdout, result.stderr)
    assert result.returncode == 0
