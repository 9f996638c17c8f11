"""`osb up` and `osb down`: a server in the background, by a socket of the user's own."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import DEADLINE_SECONDS, OURS, REPO, Osb, lifecycle

if os.geteuid() != 0:
    pytest.skip("these tests make real sandboxes and need root: sudo make test", allow_module_level=True)


class Place:
    """A machine's worth of settings, with no server that anybody named."""

    address = "unused"

    def __init__(self, home):
        self.osb = Osb(OURS, self, home)
        for name in ("OPEN_SANDBOX_DOMAIN", "OPEN_SANDBOX_API_KEY", "SUDO_UID", "SUDO_USER", "NOTIFY_SOCKET"):
            self.osb.environment.pop(name, None)
        self.directory = home / "up"
        self.osb.environment["OPEN_SANDBOX_UP_DIR"] = str(self.directory)
        self.settings = home / "server.toml"
        self.settings.write_text(
            f'[embedded]\ndata_dir = "{home}/data"\n[store]\npath = "{home}/osb.db"\n[server]\napi_key = "never-needed"\n'
        )
        self.socket = self.directory / "0/api.sock"

    def up(self, *more, code=0, **options):
        return self.osb("up", "--server-config", self.settings, *more, code=code, **options)

    def server(self):
        """The number of the process that listens."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(self.socket))
            return int.from_bytes(stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")


@pytest.fixture
def place():
    # Not pytest's own: the path of a socket has 108 bytes at most.
    with tempfile.TemporaryDirectory(prefix="osb-up-", ignore_cleanup_errors=True) as home:
        place = Place(Path(home))
        yield place
        place.osb("down", "--all", code=None)


def ended(process, act):
    """Does something that ends a process, and waits until it has."""
    watched = os.pidfd_open(process)
    try:
        act()
        # Readable when it has ended (pidfd_open(2)).
        assert select.select([watched], [], [], DEADLINE_SECONDS)[0], "it lives on"
    finally:
        os.close(watched)


def listening_ports(process):
    """Of TCP: what /proc/net/tcp says of the sockets that the process has open (proc(5))."""
    own = set()
    for entry in os.scandir(f"/proc/{process}/fd"):
        # It opens and closes others meanwhile.
        with contextlib.suppress(FileNotFoundError):
            own.add(os.readlink(entry.path))
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listen = "0A"
    return [line[1] for line in lines if line[3] == listen and f"socket:[{line[9]}]" in own]


def test_up_run_down(place):
    made = place.up("-o", "json")
    record = json.loads(made.stdout)
    assert record["socket"] == str(place.socket) and record["user"] == "root"
    assert record["process"] == place.server()
    assert Path(record["log"]).exists()
    assert "is an administrator" in made.stderr
    # Nobody but its user: not by its mode, and not by a port.
    assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.directory.stat().st_mode) == 0o711
    assert listening_ports(record["process"]) == []
    # No variables, no file, no key.
    assert place.osb("run", "host", "--", "echo", "hi").stdout == "hi\n"
    # Again is no error and no other server.
    again = place.up("-o", "json")
    assert json.loads(again.stdout)["process"] == record["process"]
    assert "keeps the settings" in again.stderr
    down = place.osb("down")
    assert "has ended" in down.stdout
    assert not place.socket.exists()
    assert "No server" in place.osb("down").stdout


def test_everything_goes_through_the_socket(place, tmp_path):
    """Files, ports, terminals: each of them is another kind of connection."""
    place.up()
    osb = place.osb
    osb("run", "-d", "--name", "web", "host", "--", "sleep", "600")
    payload = os.urandom(300_000)
    (tmp_path / "there").write_bytes(payload)
    osb("cp", tmp_path / "there", "web:/tmp/there")
    osb("cp", "web:/tmp/there", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == payload
    with osb.at_terminal("exec", "-it", "web", "--", "sh") as terminal:
        terminal.type("echo $((6*7))-seen\n")
        terminal.expect("42-seen")
        terminal.type("exit 3\n")
        assert terminal.end() == 3
    assert osb("exec", "-i", "web", "--", "wc", "-c", stdin="x" * 100_000).stdout.strip() == "100000"
    served = "from http.server import *; import sys; s=HTTPServer(('127.0.0.1',8000),SimpleHTTPRequestHandler); print('up',flush=True); s.serve_forever()"
    server = subprocess.Popen([osb.program, "exec", "web", "--", "python3", "-c", served], env=osb.environment,
                              stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"up\n"
    forward = subprocess.Popen([osb.program, "port-forward", "-o", "json", "web", ":8000"], env=osb.environment,
                               stdout=subprocess.PIPE)
    address = json.loads(forward.stdout.readline())["address"]
    fetched = subprocess.run(["curl", "-sS", f"http://{address}/etc/hostname"], capture_output=True, timeout=DEADLINE_SECONDS)
    assert fetched.returncode == 0 and fetched.stdout, fetched.stderr
    forward.terminate(), server.terminate()
    forward.wait(), server.wait()


def test_sandboxes_survive_down_and_are_taken_back(place):
    place.up()
    place.osb("run", "-d", "--name", "kept", "host", "--", "sleep", "600")
    assert "1 sandboxes run on" in place.osb("down").stderr
    refused = place.osb("ls", code=1)
    assert "sudo osb up" in refused.stderr
    place.up()
    assert place.osb("exec", "kept", "--", "echo", "still").stdout == "still\n"
    place.osb("down", "--all")
    place.up()
    assert place.osb("ps", "-q").stdout == ""


def test_two_at_once_start_one_server(place):
    command = [place.osb.program, "up", "--server-config", place.settings, "-o", "json"]
    both = [subprocess.Popen(command, env=place.osb.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for _ in range(2)]
    said = [process.communicate(timeout=DEADLINE_SECONDS) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert len({json.loads(out)["process"] for out, _ in said}) == 1
    ended(place.server(), lambda: place.osb("down"))


def test_a_killed_server_is_told_and_replaced(place):
    place.up()
    first = place.server()
    ended(first, lambda: os.kill(first, signal.SIGKILL))
    assert place.socket.exists(), "it had no time to remove it"
    refused = place.osb("ls", code=1)
    assert "of `osb up` has ended" in refused.stderr
    assert str(place.socket) in refused.stderr
    # Down has nothing to signal, and takes away what was left.
    assert "No server" in place.osb("down").stdout
    assert not place.socket.exists()
    place.up()
    assert place.server() != first


def test_a_process_that_only_has_the_number_is_never_signalled(place):
    """Whoever put a socket there is the one who listens; nothing else tells who the server is."""
    place.up()
    first = place.server()
    ended(first, lambda: os.kill(first, signal.SIGKILL))
    bystander = subprocess.Popen(["sleep", "600"])
    (place.directory / "0/server.json").write_text(json.dumps({"pid": bystander.pid}))
    assert "No server" in place.osb("down").stdout
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_server_that_does_not_start_says_why(place):
    refused = place.up("--set", "runtime.execd_path=/no/such/execd", code=1)
    assert "the server did not start: " in refused.stderr
    assert "/no/such/execd" in refused.stderr, "the reason"
    assert "server.log" in refused.stderr, "and where there is more"
    assert not place.socket.exists()
    refused = place.up("--set", "no.such=key", code=1)
    assert "no.such" in refused.stderr
    # Nothing of it is in the way.
    place.up()
    place.osb("ls")


def test_two_servers_do_not_share_a_data_directory(place, tmp_path):
    place.up()
    other = {"OPEN_SANDBOX_UP_DIR": str(place.directory.parent / "other")}
    refused = place.up(code=1, env=other)
    assert "another server uses" in refused.stderr
    place.osb("ls")


def test_a_full_disk_is_told(place):
    """The log and the store are on a disk without room."""
    place.directory.mkdir(mode=0o711)
    full = place.directory.parent / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", full], check=True)
    try:
        fill = os.open(full / "fill", os.O_CREAT | os.O_WRONLY)
        with contextlib.suppress(OSError):
            while True:
                os.write(fill, b"x" * 4096)
        os.close(fill)
        other = {"OPEN_SANDBOX_UP_DIR": str(full / "up")}
        refused = place.up("--set", f"embedded.data_dir={full}/data", "--set", f"store.path={full}/osb.db", code=1, env=other)
        # Where it was found out depends on what came first.
        assert re.search("No space left|is full", refused.stderr), refused.stderr
    finally:
        subprocess.run(["umount", full], check=True)


def test_ctrl_c_while_it_starts_leaves_nothing(place):
    with place.osb.at_terminal("up", "--server-config", place.settings) as terminal:
        terminal.type(b"\x03")
        code = terminal.end()
    # It may have been ready before the key was read, or the key came before it had begun.
    assert code in (0, 130, -signal.SIGINT)
    if code != 0:
        assert not place.socket.exists()
        assert "No server" in place.osb("down").stdout


def test_the_terminal_that_started_it_may_go(place):
    with place.osb.at_terminal("up", "--server-config", place.settings) as terminal:
        terminal.expect("Server started")
        assert terminal.end() == 0
    place.osb("ls")


def test_a_user_who_called_by_sudo_gets_the_socket(place):
    nobody = 65534
    sudo = {"SUDO_UID": str(nobody), "SUDO_USER": "nobody"}
    record = json.loads(place.up("-o", "json", env=sudo).stdout)
    assert record["user"] == "nobody"
    owned = place.directory / str(nobody) / "api.sock"
    assert (owned.stat().st_uid, stat.S_IMODE(owned.stat().st_mode)) == (nobody, 0o600)
    place.directory.parent.chmod(0o755)

    def as_user(user, *words):
        program = Path(tempfile.mkdtemp(dir=place.directory.parent)) / "osb"
        program.parent.chmod(0o755)
        os.link(OURS, program) if os.stat(OURS).st_dev == os.stat(program.parent).st_dev else program.write_bytes(OURS.read_bytes())
        program.chmod(0o755)
        return subprocess.run([program, *words], env={**place.osb.environment, "HOME": "/"}, user=user, group=user,
                              extra_groups=[], capture_output=True, text=True, timeout=DEADLINE_SECONDS)

    run = as_user(nobody, "run", "host", "--", "echo", "hi")
    assert run.stdout == "hi\n", run.stderr
    # Others are not let in, and are told what they need.
    other = {**place.osb.environment, "OPEN_SANDBOX_DOMAIN": f"unix://{owned}"}
    place.osb.environment = other
    refused = as_user(1, "ls")
    assert refused.returncode == 1 and "Permission denied" in refused.stderr, refused.stderr
    del place.osb.environment["OPEN_SANDBOX_DOMAIN"]
    for command in ("up", "down"):
        refused = as_user(nobody, command)
        assert refused.returncode == 1 and f"sudo osb {command}" in refused.stderr
    place.osb("down", "--all", env=sudo)


def test_a_directory_that_others_can_change_is_refused(place):
    place.directory.mkdir(mode=0o777)
    place.directory.chmod(0o777)
    refused = place.up(code=1)
    assert "root alone can change" in refused.stderr


def test_settings_come_before_it(place):
    warned = place.up(env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:9"}).stderr
    assert "goes to 127.0.0.1:9" in warned
    refused = place.osb("ls", code=1, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:9"})
    assert "127.0.0.1:9" in refused.stderr
    place.osb("ls")
    place.osb("ls", "--domain", f"unix://{place.socket}")
    refused = place.osb("ls", "--domain", "unix://relative", code=1)
    assert "unix:///PATH" in refused.stderr


def test_a_port_is_for_sdks_and_wants_the_key(place):
    port = lifecycle.free_port()
    record = json.loads(place.up("--port", str(port), "-o", "json").stdout)
    assert record["address"] == f"127.0.0.1:{port}"
    named = {"OPEN_SANDBOX_DOMAIN": f"127.0.0.1:{port}"}
    place.osb("ls", code=1, env=named)
    place.osb("ls", env={**named, "OPEN_SANDBOX_API_KEY": "never-needed"})
    assert len(listening_ports(place.server())) == 1
    place.osb("ls")


def test_the_page_does_what_it_says(place):
    """docs/up.md, as it stands there; `sudo` does nothing, since the tests are root."""
    home = place.directory.parent
    (home / "bin").mkdir()
    (home / "bin/osb").symlink_to(OURS)
    (home / "bin/sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (home / "bin/sudo").chmod(0o755)
    place.osb.environment.update({
        "PATH": f"{home}/bin:{place.osb.environment['PATH']}",
        "OPENSANDBOX_EMBEDDED_DATA_DIR": str(home / "data"), "OPENSANDBOX_STORE_PATH": str(home / "osb.db"),
    })
    blocks = re.findall(r"^```sh\n(.*?)^```", (REPO / "docs/up.md").read_text(), re.M | re.S)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "".join(blocks)], env=place.osb.environment, cwd=home,
                          capture_output=True, text=True, timeout=DEADLINE_SECONDS * 2)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "hello" in done.stdout
