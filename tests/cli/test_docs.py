"""Every block of commands in the guides of docs/ is run, page by page, as it stands there."""

import re
import subprocess
import sys

import pytest
from conftest import REPO

PAGES = ["concepts", "docker", "images", "data", "operate"]
PAGE_SECONDS_MAX = 120


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(osb, tmp_path, page):
    blocks = re.findall(r"^```sh\n(.*?)^```", (REPO / f"docs/{page}.md").read_text(), re.M | re.S)
    assert blocks, "a page without commands does not belong here"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/osb").symlink_to(osb.program)
    before = osb("ps", "-q").stdout.split()
    osb.environment["PATH"] = f"{tmp_path}/bin:{osb.environment['PATH']}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "".join(blocks)], env=osb.environment, cwd=tmp_path,
                          capture_output=True, text=True, timeout=PAGE_SECONDS_MAX)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # Pages clean up after themselves.
    assert osb("ps", "-q").stdout.split() == before, done.stdout


def test_the_recipes_work_with_the_published_sdk(osb):
    [program] = re.findall(r"^```python\n(.*?)^```", (REPO / "docs/recipes.md").read_text(), re.M | re.S)
    done = subprocess.run([sys.executable, "-c", program], env=osb.environment, capture_output=True, text=True,
                          timeout=PAGE_SECONDS_MAX)
    assert done.returncode == 0, done.stderr


def test_the_page_of_errors_is_fresh():
    subprocess.run([REPO / "tools/errors-page", "--check"], check=True)


def test_every_command_that_a_page_names_is_there(osb):
    """Of commands that stand in the text, too."""
    for page in (REPO / "docs").glob("*.md"):
        for words in re.findall(r"`osb ([a-z-]+(?: [a-z-]+)?)", page.read_text()):
            first = words.split()[0]
            if first in ("server", "doctor", "mcp"):
                continue
            assert osb(first, "--help").stdout, words
