"""SIGHUP: API keys, allowed paths and the log level are read again; a file with a mistake changes nothing."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import API_KEY, BACKEND, OSB, START_SECONDS_MAX, delete_all, free_port, newer_than_0_1

pytestmark = pytest.mark.skipif(
    "not newer_than_0_1() or BACKEND != 'embedded'", reason="no client has a part in it: it runs once"
)


class Reloaded:
    """A server of its own, whose log is read line by line."""

    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="osb-reload-"))
        self.port = free_port()
        self.config = self.home / "config.toml"

    def write(self, server="", rest=""):
        self.config.write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\n{server}\n[runtime]\ntype = "embedded"\n'
            f'[embedded]\ndata_dir = "{self.home}/data"\n[store]\npath = "{self.home}/osb.db"\n{rest}\n'
        )

    def start(self):
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(self.home / "notify"))
        notify.settimeout(START_SECONDS_MAX)
        self.process = subprocess.Popen(
            [OSB, "server", "--config", self.config],
            env={**os.environ, "NOTIFY_SOCKET": str(self.home / "notify")},
            stderr=subprocess.PIPE, text=True,
        )
        while b"READY=1" not in notify.recv(4096):
            pass

    def said(self, *words):
        """Reads the log up to a line that has all these words."""
        for line in self.process.stderr:
            if all(word in line for word in words):
                return line
        pytest.fail(f"the server ended without saying {words}")

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def status(self, key, method="GET", path="/v1/sandboxes", body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS_MAX)
        headers = {"OPEN-SANDBOX-API-KEY": key, "content-type": "application/json"}
        connection.request(method, path, headers=headers, body=json.dumps(body) if body else None)
        answer = connection.getresponse()
        print(method, path, answer.status, answer.read())
        return answer.status

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=START_SECONDS_MAX)
        shutil.rmtree(self.home, ignore_errors=True)
        assert self.process.returncode == 0


@pytest.fixture
def reloaded():
    server = Reloaded()
    yield server
    server.end()


def test_a_running_server_takes_over_keys_paths_and_log_level(reloaded):
    reloaded.write('api_key = "first"')
    reloaded.start()
    assert reloaded.status("first") == 200
    allowed = reloaded.home / "allowed"
    allowed.mkdir()
    # Root in a sandbox is nobody of this machine there.
    allowed.chmod(0o777)
    mounting = {
        "image": {"uri": "host"}, "timeout": 60, "resourceLimits": {"cpu": "1", "memory": "128Mi"},
        "entrypoint": ["sleep", "600"],
        "volumes": [{"name": "v", "host": {"path": str(allowed)}, "mountPath": "/v"}],
    }
    assert reloaded.status("first", "POST", "/v1/sandboxes", mounting) == 400

    reloaded.write(f'api_key = "{API_KEY}"', f'[storage]\nallowed_host_paths = ["{allowed}"]\n[log]\nlevel = "debug"')
    reloaded.reload()
    reloaded.said("taken over", "INFO")
    assert reloaded.status("first") == 401
    assert reloaded.status(API_KEY) == 200
    reloaded.said("DEBUG", "answered")
    assert reloaded.status(API_KEY, "POST", "/v1/sandboxes", mounting) == 202
    delete_all(reloaded.port)

    reloaded.config.write_text("[server]\nport = nonsense\n")
    reloaded.reload()
    reloaded.said("ERROR", "the old one holds")
    assert reloaded.status(API_KEY) == 200

    reloaded.write("", f'[storage]\nallowed_host_paths = []')
    reloaded.reload()
    reloaded.said("ERROR", "no API key any more")
    assert reloaded.status("nobody") == 401


def test_a_server_without_a_key_says_so(reloaded):
    reloaded.write()
    reloaded.start()
    assert "new-key" in reloaded.said("WARN", "no API key")
