"""The osb half of habits.py: everyday `docker run` lines, with `osb` in the place of `docker`."""

import pytest
from conftest import OURS, Osb, lifecycle
from habits import ECHO, LINES, PLAIN, Shop, archive


@pytest.fixture(scope="module")
def shop(server, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    osb = Osb(OURS, server, home)
    archive(home / "images.tar")
    osb("image", "import", home / "images.tar")
    shop = Shop(OURS, osb.environment, server.host_paths, lifecycle.free_port)
    shop.is_other = True
    yield shop
    osb("image", "rm", PLAIN, ECHO, code=None)


@pytest.mark.parametrize("line", LINES, ids=str)
def test_a_line_does_what_docker_does_or_says_what_to_use_instead(shop, line):
    done = shop.check(line)
    if line.instead:
        assert done.returncode in (2, 125), done
        assert line.instead in done.stderr, done.stderr


def test_there_are_fifty():
    assert len({line.words for line in LINES}) >= 50
