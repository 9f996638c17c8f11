"""The published JavaScript SDK, run by node's own test runner against the same server."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import REPO, newer_than_0_1

SUITE = Path(__file__).parent / "js"
# Where the package is installed: outside the suite's folder, kept between runs.
INSTALLED = REPO / ".tools" / "js-client"
pytestmark = pytest.mark.skipif("not newer_than_0_1()", reason="runs once, beside the newest Python SDK")


def test_javascript_sdk(server):
    assert shutil.which("npm"), "npm is missing: apt-get install nodejs npm"
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "sandbox.test.mjs"):
        shutil.copy(SUITE / name, INSTALLED / name)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=INSTALLED, check=True, timeout=300)
    result = subprocess.run(
        ["node", "--test", "--test-reporter=spec", "sandbox.test.mjs"], cwd=INSTALLED,
        env=server.environment, capture_output=True, text=True, timeout=300,
    )
    print(result.stdout, result.stderr)
    assert result.returncode == 0
