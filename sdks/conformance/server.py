"""A real `osb server` for the scenarios: embedded runtime, the image `host`, everything in a
temporary place. It can be stopped and started again on the same port with the same sandboxes.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
API_KEY = "a-key-for-conformance"
# The server says READY=1 within this, also on a machine that is busy with other tests.
START_SECONDS_MAX = 60


def programs():
    """osb and execd: OSB_BIN, or what `cargo build` left, the newest of it."""
    if "OSB_BIN" in os.environ:
        return Path(os.environ["OSB_BIN"])
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPO / "target"))
    found = [path for path in (target / "release/osb", target / "debug/osb") if path.is_file()]
    if not found:
        sys.exit("conformance: there is no osb; run: cargo build -p osb -p execd")
    return max(found, key=lambda path: path.stat().st_mtime)


class Server:
    def __init__(self, ingress="direct"):
        self.home = Path(tempfile.mkdtemp(prefix="osb-conformance-"))
        self.osb = programs()
        # Stays bound and is never listened on, so that nobody else gets the port between two starts.
        self.reserved = socket.socket()
        self.reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.reserved.bind(("127.0.0.1", 0))
        self.port = self.reserved.getsockname()[1]
        self.host_paths = self.home / "shared"
        self.host_paths.mkdir()
        # Root in a sandbox is nobody of this machine there.
        self.host_paths.chmod(0o777)
        self.log = self.home / "server.log"
        self.process = None
        (self.home / "config.toml").write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\napi_key = "{API_KEY}"\n'
            f'[runtime]\ntype = "embedded"\nexecd_path = "{self.osb.parent / "execd"}"\n'
            f'[embedded]\ndata_dir = "{self.home}/data"\n'
            f'[store]\npath = "{self.home}/osb.db"\n'
            f'[ingress]\nmode = "{ingress}"\ngateway.port = 0\n'
            f'[storage]\nallowed_host_paths = ["{self.host_paths}"]\n'
        )
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        path = self.home / "notify"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, self.log.open("ab") as log:
            notify.bind(str(path))
            notify.settimeout(START_SECONDS_MAX)
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPEN_SANDBOX_", "SANDBOX_"))}
            self.process = subprocess.Popen(
                [self.osb, "server", "--config", self.home / "config.toml"],
                env={**environment, "NOTIFY_SOCKET": str(path), "HOME": str(self.home)},
                stdout=log, stderr=subprocess.STDOUT,
            )
            try:
                while b"READY=1" not in notify.recv(4096):
                    pass
            except TimeoutError:
                self.process.kill()
                sys.exit("conformance: the server did not become ready:\n" + self.log.read_text()[-4000:])

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        try:
            return self.process.wait(START_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def call(self, method, path):
        connection = http.client.HTTPConnection(self.address, timeout=START_SECONDS_MAX)
        connection.request(method, path, headers={"OPEN-SANDBOX-API-KEY": API_KEY})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, json.loads(body) if body else None

    def clean(self):
        """Ends every sandbox, removes every snapshot and volume: a scenario finds nothing of another."""
        for kind in ("sandboxes", "snapshots"):
            while True:
                items = self.call("GET", f"/v1/{kind}?pageSize=200")[1]["items"]
                for item in items:
                    self.call("DELETE", f"/v1/{kind}/{item['id']}")
                if len(items) < 200:
                    break
        for volume in self.call("GET", "/v1/volumes")[1]["items"]:
            self.call("DELETE", f"/v1/volumes/{volume['name']}?force=true")

    def close(self):
        """Stops it and removes its place; whether it was well to the end."""
        if self.process.poll() is not None:
            self.start()
        self.clean()
        code = self.stop()
        log = self.log.read_text(errors="replace")
        is_well = code == 0 and "panicked" not in log
        if not is_well:
            print(f"conformance: the server ended with {code}\n{log[-4000:]}", file=sys.stderr)
        shutil.rmtree(self.home, ignore_errors=True)
        return is_well
