"""What somebody is attached to: it lives as long as they are there, survives the server, and ends with
them unless they leave it on purpose."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from conftest import DEADLINE_SECONDS, IMAGE, OURS, Osb, lifecycle

LEAVE = b"\x10\x11"  # ctrl-p, ctrl-q


def states(osb):
    return {item["id"]: item["status"]["state"] for item in osb.json("ls")["items"]}


@pytest.mark.parametrize("words", (["shell", "--image", IMAGE], ["run", "-it", IMAGE, "--", "sh"]), ids=("shell", "run"))
def test_leaving_keeps_the_sandbox(osb, words):
    with osb.at_terminal(*words) as first:
        first.type("NAME=kept; echo begun-$((3+3))\n")
        first.expect("begun-6")
        first.type(LEAVE)
        first.expect("osb attach ")
        sandbox, terminal = first.expect("\n").split()
        first.expect(f"osb rm {sandbox}")
        assert first.end() == 0
    assert states(osb)[sandbox] == "Running"
    with osb.at_terminal("attach", sandbox, terminal) as second:
        second.type("echo $NAME-$((4+4)); exit\n")
        second.expect("kept-8")
        assert second.end() == 0
    osb("rm", sandbox)


class Events:
    """The server's live events, one after the other."""

    def __init__(self, osb, sandbox):
        self.process = subprocess.Popen(
            [osb.program, "events", "-f", "--after", "0", "--sandbox-id", sandbox, "-o", "json"],
            env=osb.environment, stdout=subprocess.PIPE, text=True,
        )

    def until(self, kind):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["type"] == kind:
                return event
        raise AssertionError(f"no {kind}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("how", ("shell", "exec"))
def test_a_sandbox_is_renewed_while_somebody_is_attached(osb, how):
    sandbox = osb.json("sandbox", "create", "-i", IMAGE, "-t", "60s")["id"]
    before = osb.json("sandbox", "get", sandbox)["expires_at"]
    words = {"shell": ["shell", sandbox], "exec": ["exec", sandbox, "--", "sleep", "1000"]}[how]
    with Events(osb, sandbox) as events, osb.at_terminal(*words) as attached:
        events.until("sandbox.renewed")
        assert osb.json("sandbox", "get", sandbox)["expires_at"] > before
        attached.type(b"\x03" if how == "exec" else "exit\n")
        attached.end()
    osb("rm", sandbox)


def test_a_lifetime_that_was_named_is_announced_and_ends(osb):
    with osb.at_terminal("shell", "--image", IMAGE, "--timeout", "1h", columns=120) as shell:
        shell.expect("in sandbox ")
        sandbox = shell.expect(";")
        shell.type("echo begun-$((3+3))\n")
        shell.expect("begun-6")
        # Shortened from elsewhere: whoever is attached hears of it.
        osb("sandbox", "renew", sandbox, "-t", "5s")
        shell.expect("lifetime ends in")
        shell.expect("reached the end of its lifetime")
        assert shell.end() == 125


def test_a_closed_pipe_interrupts_what_it_ran(osb, shared):
    run = subprocess.run(
        ["bash", "-c", f"'{osb.program}' exec {shared} -- yes osb-endless | head -n 1"],
        env=osb.environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS,
    )
    assert run.stdout == "osb-endless\n", run
    listed = osb("exec", shared, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert "osb-endless" not in listed


@pytest.mark.parametrize("words", (
    ["exec", "-t", "SHARED", "--", "sh", "-c", "echo up-$((1+1)); exec sleep 4321"],
    ["exec", "SHARED", "--", "sh", "-c", "echo up-$((1+1)); exec sleep 4321"],
), ids=("terminal", "pipes"))
def test_a_vanished_terminal_interrupts_what_it_ran(osb, shared, words):
    words = [shared if word == "SHARED" else word for word in words]
    terminal = osb.at_terminal(*words)
    terminal.expect("up-2")
    # Closing the last descriptor of the terminal is what a window does that is closed.
    os.close(terminal.slave)
    os.close(terminal.master)
    assert terminal.process.wait(DEADLINE_SECONDS) == 129
    listed = osb("exec", shared, "--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert "sleep 4321" not in listed


class OwnServer:
    """A server that can be stopped and started again on the same port and data."""

    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="osb-restart-"))
        self.port = lifecycle.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.config = self.home / "config.toml"
        self.config.write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\napi_key = "{lifecycle.API_KEY}"\n'
            f'[runtime]\ntype = "embedded"\n[embedded]\ndata_dir = "{self.home}/data"\n[store]\npath = "{self.home}/osb.db"\n'
        )
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(self.home / "notify"))
        self.notify.settimeout(lifecycle.START_SECONDS_MAX)

    def start(self):
        with (self.home / "server.log").open("ab") as out:
            self.process = subprocess.Popen(
                [OURS, "server", "--config", self.config], stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, "NOTIFY_SOCKET": str(self.home / "notify")},
            )
        while b"READY=1" not in self.notify.recv(4096):
            pass

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(DEADLINE_SECONDS)


@pytest.mark.parametrize("how", (signal.SIGTERM, signal.SIGKILL), ids=("stopped", "killed"))
def test_a_shell_survives_a_restart_of_the_server(tmp_path, how):
    server = OwnServer()
    server.start()
    osb = Osb(OURS, server, tmp_path)
    sandbox = osb.json("sandbox", "create", "-i", IMAGE, "-t", "20m")["id"]
    try:
        with osb.at_terminal("shell", sandbox, columns=120) as shell:
            shell.expect("terminal ")
            terminal = shell.expect(" in sandbox")
            shell.type("NAME=kept; echo begun-$((3+3))\n")
            shell.expect("begun-6")
            # Prints while nobody is there to see it.
            shell.type("until [ -e /tmp/stopped ]; do :; done; echo unseen-$((5+5)); touch /tmp/said\n")
            shell.expect("/tmp/said")
            threading.Thread(target=server.stop, args=(how,)).start()
            shell.expect(f"osb attach {sandbox} {terminal}")
            server.process.wait(DEADLINE_SECONDS)
            server.start()
            shell.expect("connected again")
            osb("exec", sandbox, "--", "touch", "/tmp/stopped")
            shell.expect("unseen-10")
            shell.type("echo $NAME-$((4+4)); exit 3\n")
            shell.expect("kept-8")
            assert shell.end() == 3
    finally:
        osb("rm", "--all", code=None)
        server.stop()
        shutil.rmtree(server.home, ignore_errors=True)
