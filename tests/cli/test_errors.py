"""Bad input and bad luck: a message that helps, the right exit code, never a backtrace."""

import contextlib
import json
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from conftest import DEADLINE_SECONDS


def test_an_unknown_command_gets_the_nearest(osb):
    said = osb("sandbx", "list", code=2).stderr
    assert "sandbox" in said
    said = osb("rn", code=2).stderr
    assert "'run'" in said and "credential-vault" not in said
    assert "--image" in osb("sandbox", "create", "--imge", "x", code=2).stderr


def test_a_group_alone_shows_its_help(osb):
    for group in ("sandbox", "command", "command session", "file", "skills", "config"):
        assert "Usage:" in osb(*group.split()).stdout


def test_a_server_that_is_not_there(osb):
    done = osb("ls", code=1, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1"})
    assert "127.0.0.1:1" in done.stderr and "osb up" in done.stderr
    assert done.stdout == ""
    why = [line for line in done.stderr.splitlines() if "why:" in line]
    assert len(why) == 1 and "refused" in why[0], done.stderr
    said = json.loads(osb("ls", "-o", "json", code=1, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1"}).stderr)
    assert said["status"] == "error" and "osb up" in said["next"]
    osb("run", "host", "--", "true", code=125, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1"})


def test_a_wrong_key_and_none(osb):
    wrong = osb("ls", code=1, env={"OPEN_SANDBOX_API_KEY": "wrong"}).stderr
    assert "osb config show" in wrong
    missing = osb("ls", code=1, env={"OPEN_SANDBOX_API_KEY": ""}).stderr
    assert "connection.api_key" in missing


def test_a_sandbox_that_is_not_there(osb):
    for words in (["sandbox", "get"], ["file", "cat"], ["sandbox", "health"], ["exec"]):
        more = {"file": ["/x"], "exec": ["--", "true"]}.get(words[0], [])
        code = 125 if words == ["exec"] else 1
        assert "osb ls" in osb(*words, "not-there", *more, code=code).stderr


def test_a_command_that_does_not_start_has_the_code_of_shells(osb, shared):
    for words in (["exec", shared], ["run", "host"]):
        assert "nothing-of-this-name" in osb(*words, "--", "nothing-of-this-name", code=127).stderr
        osb(*words, "--", "/nothing/of/this/name", code=127)
        osb(*words, "--", "/etc/passwd", code=126)


def test_formats_that_make_no_sense(osb, shared):
    said = osb("command", "run", shared, "-o", "json", "--", "true", code=2).stderr
    assert "raw" in said
    osb("ls", "-o", "xml", code=2)


def test_a_broken_pipe_is_quiet(osb, shared):
    run = subprocess.run(
        ["bash", "-c", f"'{osb.program}' exec {shared} -- seq 1 200000 | head -n 1; echo ${{PIPESTATUS[0]}}"],
        env=osb.environment, capture_output=True, text=True, timeout=60,
    )
    assert run.stdout == "1\n141\n" and run.stderr == "", run


def test_no_home(osb):
    env = {k: v for k, v in osb.environment.items() if k != "HOME"}
    run = lambda *words: subprocess.run([osb.program, *words], env=env, capture_output=True, text=True, timeout=60)
    assert run("ls").returncode == 0
    done = run("config", "init")
    assert done.returncode == 1 and "--config" in done.stderr


def test_settings(osb):
    osb("config", "set", "connection.domain", "x", code=1)
    osb("config", "init")
    osb("config", "set", "connection.domain", "localhost:9090")
    env = {"OPEN_SANDBOX_DOMAIN": "", "OPEN_SANDBOX_API_KEY": "a-secret-key"}
    shown = osb.json("config", "show", env=env)
    assert shown["domain"] == "localhost:9090"
    assert shown["api_key"] == "a-********ey"
    (osb.home / ".opensandbox/config.toml").write_text("[connection\n")
    assert "not valid" in osb("ls", code=1).stderr
    osb("config", "init", "--force")


def test_words_that_do_not_go_together(osb, tmp_path):
    for words, part in (
        (["sandbox", "create"], "image"),
        (["sandbox", "create", "--template", "t", "--image", "i"], "template"),
        (["sandbox", "create", "-i", "x", "-t", "soon"], "duration"),
        (["sandbox", "create", "-i", "x", "--image-auth-username", "u"], "together"),
        (["egress", "patch", "x", "--rule", "maybe=y"], "allow="),
        (["cp", "a", "b"], "sandbox"),
        (["ls", "-s", "Sleeping"], "Running"),
    ):
        assert part in osb(*words, code=2).stderr


def test_server_and_doctor_stay_reachable(osb):
    assert "--config" in osb("server", "--help").stdout
    assert osb("doctor", code=None).returncode in (0, 1)
    assert "first word" in osb("--no-color", "server", code=2).stderr


class CuttingProxy:
    """Passes connections on to the server until so many bytes have gone one way; then cuts them, or holds
    them until it is closed."""

    def __init__(self, server, most, holds=False):
        self.server, self.most = server, most
        self.over = threading.Event()
        if not holds:
            self.over.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            host, port = self.server.split(":")
            server = socket.create_connection((host, int(port)))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        count = 0
        try:
            while count < self.most and (piece := source.recv(65536)):
                sink.sendall(piece)
                count += len(piece)
        except OSError:
            pass
        if count >= self.most:
            self.over.wait(DEADLINE_SECONDS)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.listener.close()


def test_a_transfer_that_is_cut_off_leaves_what_was_there(osb, shared, server, tmp_path):
    osb("exec", shared, "--", "sh", "-c", "head -c 40000000 /dev/zero > /tmp/big; echo old > /tmp/target")
    kept, big = tmp_path / "kept", tmp_path / "big"
    kept.write_text("old")
    big.write_bytes(bytes(40_000_000))
    with CuttingProxy(server.address, 5_000_000) as proxy:
        env = {"OPEN_SANDBOX_DOMAIN": proxy.address}
        down = osb("cp", "-q", f"{shared}:/tmp/big", kept, code=1, env=env)
        up = osb("cp", "-q", big, f"{shared}:/tmp/target", code=1, env=env)
    assert down.stderr.startswith("error: ") and up.stderr.startswith("error: ")
    assert kept.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".osb")] == []
    assert osb("file", "cat", shared, "/tmp/target").stdout == "old\n"


def test_an_interrupted_download_leaves_what_was_there(osb, shared, server, tmp_path):
    osb("exec", shared, "--", "truncate", "-s", "40M", "/tmp/long")
    kept = tmp_path / "kept"
    kept.write_text("old")
    with CuttingProxy(server.address, 5_000_000, holds=True) as proxy:
        env = {"OPEN_SANDBOX_DOMAIN": proxy.address}
        with osb.at_terminal("cp", f"{shared}:/tmp/long", kept, columns=120, env=env) as copy:
            copy.expect("MiB/s")
            copy.type(b"\x03")
            assert copy.end() == 130
    assert kept.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".osb")] == []


def test_a_terminal_that_is_too_small(osb, shared):
    for columns, rows in ((1, 1), (5, 2)):
        with osb.at_terminal("ls", "-m", "for=shared", columns=columns, rows=rows) as listing:
            assert listing.end() == 0
            assert shared[:8].encode() in listing.screen.replace(b"\r\n", b"")
        with osb.at_terminal("exec", "-it", shared, "--", "sh", "-c", "stty size; exit 4",
                             columns=columns, rows=rows) as run:
            assert run.end() == 4
        with osb.at_terminal("code", shared, "-l", "bash", columns=columns, rows=rows) as code:
            code.expect(">>> ")
            code.type("exit_code=$((40+3)); echo v$exit_code\r")
            code.expect("v43")
            code.type(b"\x04")
            assert code.end() == 0


def test_a_server_that_is_too_old(osb):
    class Old(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b'{"detail": "Not Found"}')

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Old) as old:
        threading.Thread(target=old.serve_forever, daemon=True).start()
        said = osb("events", "-f", code=1, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:%d" % old.server_port}).stderr
        old.shutdown()
    assert "older" in said
