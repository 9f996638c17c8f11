"""Bad input and bad luck: a message that helps, the right exit code, never a backtrace."""

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def test_an_unknown_command_gets_the_nearest(osb):
    said = osb("sandbx", "list", code=2).stderr
    assert "sandbox" in said
    assert "--image" in osb("sandbox", "create", "--imge", "x", code=2).stderr


def test_a_group_alone_shows_its_help(osb):
    for group in ("sandbox", "command", "command session", "file", "skills", "config"):
        assert "Usage:" in osb(*group.split()).stdout


def test_a_server_that_is_not_there(osb):
    done = osb("ls", code=1, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1"})
    assert "127.0.0.1:1" in done.stderr and "osb server" in done.stderr
    assert done.stdout == ""
    said = json.loads(osb("ls", "-o", "json", code=1, env={"OPEN_SANDBOX_DOMAIN": "127.0.0.1:1"}).stderr)
    assert said["status"] == "error" and "osb server" in said["next"]
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
