"""Names and ids from the server, completed by the real shells."""

import subprocess

import pytest
from conftest import DEADLINE_SECONDS, IMAGE

NAME = "completed-name"


@pytest.fixture(scope="module")
def named(server, tmp_path_factory):
    from conftest import OURS, Osb

    osb = Osb(OURS, server, tmp_path_factory.mktemp("home"))
    osb("run", "-d", "--name", NAME, IMAGE)
    yield
    osb("rm", NAME)


@pytest.fixture
def shell(osb, named, tmp_path):
    """An environment in which `osb` is the one under test, with the scripts of all shells."""
    (tmp_path / "osb").symlink_to(osb.program)
    for shell in ("bash", "zsh", "fish"):
        (tmp_path / f"script.{shell}").write_text(osb("completions", shell).stdout)
    osb.environment["PATH"] = f"{tmp_path}:{osb.environment['PATH']}"
    osb.environment["PS1"] = "ready> "
    return osb


def at_shell(osb, *words):
    from terminal import Terminal

    return Terminal(list(map(str, words)), osb.environment, 80, 24)


@pytest.mark.parametrize("typed", ["exec completed-n", "rm other completed-n", "sandbox get completed-n", "file ls completed-n"])
def test_bash(shell, tmp_path, typed):
    with at_shell(shell, "bash", "--norc", "--noprofile", "-i") as bash:
        bash.expect("ready> ")
        bash.type(f"bind 'set enable-bracketed-paste off'; . {tmp_path}/script.bash; PS1='now> '\n")
        bash.expect("now> ")
        bash.type(f"osb {typed}\t")
        bash.expect(f"osb {typed[:-11]}{NAME}")
        # Options and commands are completed as before.
        bash.type("\x15osb sandbox kil\t")
        bash.expect("osb sandbox kill")


@pytest.mark.parametrize("typed", ["exec completed-n", "rm completed-n", "sandbox get completed-n"])
def test_zsh(shell, tmp_path, typed):
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions/_osb").write_text((tmp_path / "script.zsh").read_text())
    with at_shell(shell, "zsh", "-f", "-i") as zsh:
        zsh.expect("ready> ")
        zsh.type(f"fpath=({tmp_path}/functions $fpath); autoload -U compinit; compinit -u -d {tmp_path}/dump; PS1='now> '\n")
        zsh.expect("now> ")
        zsh.expect("now> ")
        zsh.type(f"osb {typed}\t")
        zsh.expect(NAME)


@pytest.mark.parametrize("typed", ["exec completed-n", "rm completed-n", "sandbox get completed-n"])
def test_fish(shell, tmp_path, typed):
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {tmp_path}/script.fish; complete -C 'osb {typed}'"],
        env=shell.environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.stdout.split() == [NAME], done


def test_what_cannot_be_known_is_no_message(osb):
    done = osb("complete", "sandboxes", env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1"})
    assert (done.stdout, done.stderr) == ("", "")
