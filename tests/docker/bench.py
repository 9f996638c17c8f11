"""How fast sandboxes on a Docker engine are: beside the engine's own create and start, and beside
the embedded runtime for all that asks no engine. All in one run on one machine, taking turns, so
that a busy moment hits both sides. Prints each figure with its limit and fails when one is missed.

Started by tests/docker/bench beside an engine of its own. OSB_BIN names the server's program.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OSB = os.environ["OSB_BIN"]
ENGINE = Path(os.environ["OSB_TEST_ENGINE"]) / "docker.sock"
IMAGE = os.environ["OSB_TEST_IMAGE"]
KEY = "a-key-for-the-bench"

# Sandboxes made one after the other, by each side. An engine takes a third of a second each.
CREATES = 20
# Sandboxes made at once, and how often.
AT_ONCE, BURSTS = 20, 5
# Requests that ask no engine, by each side.
REQUESTS = 400
# Sandboxes that are there while lists are measured.
LISTED = 20

# What execd may take on top of the engine's own work.
READY_EXTRA_MS = 15
# How much slower than the engine's own rate a burst may be, and than the embedded runtime a request.
BURST_RATIO, REQUEST_RATIO = 1.10, 1.20

DEADLINE_SECONDS = 120


class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_SECONDS)
        self.sock.connect(str(ENGINE))


def call(connection, method, path, body=None, headers=None):
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status < 300, f"{method} {path}: {answer.status} {text}"
    # A command answers with a stream of events.
    is_json = answer.getheader("Content-Type", "").startswith("application/json")
    return json.loads(text) if is_json else text


class Bare:
    """The engine's own API, asked for what a sandbox has at least: the image, a program, limits."""

    def __init__(self):
        self.connection = Unix("engine", timeout=DEADLINE_SECONDS)

    def create(self):
        body = {
            "Image": IMAGE, "Cmd": ["sleep", "infinity"],
            "HostConfig": {"NetworkMode": "bridge", "Memory": 512 << 20, "NanoCpus": 10**9, "PidsLimit": 4096},
        }
        made = call(self.connection, "POST", "/containers/create", body)["Id"]
        call(self.connection, "POST", f"/containers/{made}/start")
        return made

    def delete(self, made):
        call(self.connection, "DELETE", f"/containers/{made}?force=1")


class Server:
    """A server of ours on one backend."""

    def __init__(self, backend, image):
        self.image = image
        self.home = Path(tempfile.mkdtemp(prefix=f"osb-bench-{backend}-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (self.home / "config.toml").write_text(
            f'[server]\nhost = "127.0.0.1"\nport = {self.port}\napi_key = "{KEY}"\n'
            f'[runtime]\ntype = "{backend}"\n[{backend}]\ndata_dir = "{self.home}/data"\n'
            f'[store]\npath = "{self.home}/osb.db"\n'
        )
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(self.home / "notify"))
        notify.settimeout(DEADLINE_SECONDS)
        self.log = self.home / "log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [OSB, "server", "--config", self.home / "config.toml"],
                env={**os.environ, "NOTIFY_SOCKET": str(self.home / "notify")}, stdout=out, stderr=out,
            )
        try:
            while b"READY=1" not in notify.recv(4096):
                pass
        except TimeoutError:
            self.process.kill()
            sys.exit(f"the server on {backend} did not start:\n{self.log.read_text()}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_SECONDS)
        shutil.rmtree(self.home, ignore_errors=True)

    def client(self):
        return Client(self)


class Client:
    def __init__(self, server):
        self.image = server.image
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_SECONDS)
        self.headers = {"OPEN-SANDBOX-API-KEY": KEY}

    def create(self):
        """A sandbox whose execd has answered."""
        body = {
            "image": {"uri": self.image}, "entrypoint": ["sleep", "infinity"], "timeout": 3600,
            "resourceLimits": {"cpu": "1", "memory": "512Mi"},
        }
        made = call(self.connection, "POST", "/v1/sandboxes", body, self.headers)["id"]
        self.token(made)
        call(self.connection, "GET", f"/v1/sandboxes/{made}/proxy/44772/ping", headers=self.headers)
        return made

    def token(self, made):
        """What the proxy wants to see, as the clients learn it."""
        found = call(self.connection, "GET", f"/v1/sandboxes/{made}/endpoints/44772", headers=self.headers)
        self.headers.update(found.get("headers") or {})

    def delete(self, made):
        call(self.connection, "DELETE", f"/v1/sandboxes/{made}", headers=self.headers)
        self.settle(made)

    def settle(self, made):
        """Waits until the engine has removed it, so that nobody's next measurement pays for that."""
        engine = Unix("engine", timeout=DEADLINE_SECONDS)
        engine.request("POST", f"/containers/sandbox-{made}/wait?condition=removed")
        # Not found is as good: it is gone already, or the engine never had it.
        engine.getresponse().read()

    def get(self, made):
        call(self.connection, "GET", f"/v1/sandboxes/{made}", headers=self.headers)

    def list(self, _):
        call(self.connection, "GET", "/v1/sandboxes?pageSize=20", headers=self.headers)

    def run(self, made):
        path = f"/v1/sandboxes/{made}/proxy/44772/command"
        call(self.connection, "POST", path, {"command": "true"}, self.headers)


def timed(action, *arguments):
    begun = time.perf_counter()
    result = action(*arguments)
    return (time.perf_counter() - begun) * 1000, result


missed = []


def show(what, value, limit, unit="ms"):
    verdict = "ok" if value <= limit else "MISSED"
    print(f"{what:52} {value:9.2f} {unit:5} limit {limit:9.2f}  {verdict}", flush=True)
    if value > limit:
        missed.append(what)


def one_after_another(bare, ours):
    theirs, our_times = [], []
    for number in range(CREATES + 1):
        for side, times in ((bare, theirs), (ours, our_times)):
            took, made = timed(side.create)
            side.delete(made)
            # The first of each warms up what is made once.
            if number:
                times.append(took)
    base, value = statistics.median(theirs), statistics.median(our_times)
    print(f"{'bare create and start, p50':52} {base:9.2f} ms")
    show("ours, create to an answer of execd, p50", value, base + READY_EXTRA_MS)
    print(f"{'  ours / bare':52} {value / base:9.2f}")


def burst(sides):
    """Seconds until all are there."""
    with ThreadPoolExecutor(len(sides)) as pool:
        begun = time.perf_counter()
        made = list(pool.map(lambda side: side.create(), sides))
        took = time.perf_counter() - begun
        list(pool.map(lambda pair: pair[0].delete(pair[1]), zip(sides, made)))
    return took


def at_once(make_bare, make_ours):
    ratios, base, value = [], [], []
    for _ in range(BURSTS):
        base.append(burst([make_bare() for _ in range(AT_ONCE)]))
        value.append(burst([make_ours() for _ in range(AT_ONCE)]))
        ratios.append(value[-1] / base[-1])
    print(f"{f'bare, {AT_ONCE} at once':52} {AT_ONCE / statistics.median(base):9.2f} per second")
    print(f"{f'ours, {AT_ONCE} at once':52} {AT_ONCE / statistics.median(value):9.2f} per second")
    show("  time of a burst, ours / bare", statistics.median(ratios), BURST_RATIO, "times")


def without_the_engine(docker, embedded):
    for client in (docker, embedded):
        client.made = [client.create() for _ in range(LISTED)]
        # Each sandbox has a token of its own; requests go to the last.
        client.subject = client.made[-1]
    for name in ("get", "list", "run"):
        times = {docker: [], embedded: []}
        for number in range(REQUESTS + 20):
            for client, taken in times.items():
                took, _ = timed(getattr(client, name), client.subject)
                if number >= 20:
                    taken.append(took)
        value, base = (statistics.median(times[client]) for client in (docker, embedded))
        what = {"get": "get", "list": "list", "run": "command through the proxy"}[name]
        print(f"{what + ', p50: docker, embedded':52} {value:9.3f} ms, {base:.3f} ms")
        show("  docker / embedded", value / base, REQUEST_RATIO, "times")
    for client in (docker, embedded):
        for made in client.made:
            client.delete(made)


def main():
    docker = Server("docker", IMAGE)
    try:
        one_after_another(Bare(), docker.client())
        at_once(Bare, docker.client)
        embedded = Server("embedded", "host")
        try:
            without_the_engine(docker.client(), embedded.client())
        finally:
            embedded.stop()
    finally:
        docker.stop()
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


main()
