"""How fast code runs, beside the interpreter alone and beside a Jupyter kernel started the usual
way, all in one run on one machine. Prints each figure with its limit and fails when one is missed.

Started by tests/clients/code/bench. EXECD_BIN names the daemon.
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

EXECD = os.environ["EXECD_BIN"]
ROUNDS = 30
NEXT_ROUNDS = 500
KERNEL_ROUNDS = 5
CONTEXTS = 20
DEADLINE_SECONDS = 60


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path):
        super().__init__("execd", timeout=DEADLINE_SECONDS)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_SECONDS)
        self.sock.connect(self.path)


def post(connection, uri, body):
    connection.request("POST", uri, json.dumps(body))
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text
    return text


def run(connection, context, code):
    text = post(connection, "/code", {"context": {"id": context}, "code": code})
    events = [json.loads(event) for event in text.split("\n\n") if event.strip()]
    return [event["results"]["text"] for event in events if event["type"] == "result"]


def create(connection):
    return json.loads(post(connection, "/code/context", {"language": "python"}))["id"]


def timed(action):
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def memory_kib(pids):
    """What each of these processes takes on average, shared pages divided among their users."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            total += sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return total / len(pids)


def alone():
    """The interpreter prints a result."""
    subprocess.run(["python3", "-c", "print(1+1)"], stdout=subprocess.DEVNULL, check=True)


def first(connection):
    assert run(connection, create(connection), "1+1") == ["2"]


def delete_all(connection):
    connection.request("DELETE", "/code/contexts?language=python")
    connection.getresponse().read()


def kernel():
    """A first result from a Jupyter kernel, as a notebook server starts one."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    heard = []
    client.execute_interactive("1+1", output_hook=heard.append, timeout=DEADLINE_SECONDS)
    assert any(message["msg_type"] == "execute_result" for message in heard)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def bare_interpreters_kib():
    """The same for as many interpreters that have printed the result and wait."""
    code = "print(1+1, flush=True); input()"
    bare = [
        subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(CONTEXTS)
    ]
    for process in bare:
        process.stdout.readline()
    kib = memory_kib([process.pid for process in bare])
    for process in bare:
        process.communicate(b"\n")
    return kib


def main():
    place = tempfile.mkdtemp(prefix="bench-code-")
    path = f"{place}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    os.set_inheritable(listener.fileno(), True)
    daemon = subprocess.Popen(
        [EXECD, "--port", "0", "--listen-fd", str(listener.fileno())],
        pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL,
    )
    missed = []

    def show(what, value, limit, unit="ms"):
        verdict = "ok" if value <= limit else "MISSED"
        print(f"{what:58} {value:9.2f} {unit:4} limit {limit:9.2f}  {verdict}", flush=True)
        if value > limit:
            missed.append(what)

    try:
        connection = Connection(path)
        first(connection)
        alone()
        # In turn, so that a noisy moment meets both.
        pairs = []
        for _ in range(ROUNDS):
            pairs.append((timed(alone), timed(lambda: first(connection))))
            delete_all(connection)
        bare = statistics.median(pair[0] for pair in pairs)
        print(f"{'python3 -c print(1+1), p50':58} {bare:9.2f} ms")
        new = statistics.median(pair[1] for pair in pairs)
        show("first result in a new context, p50", new, 1.5 * bare + 10)

        context = create(connection)
        times = [timed(lambda: run(connection, context, "1+1")) for _ in range(NEXT_ROUNDS)]
        show("next result in the same context, p50", statistics.median(times), 2.0)

        kernels = statistics.median(timed(kernel) for _ in range(KERNEL_ROUNDS))
        print(f"{'first result of a new Jupyter kernel, p50':58} {kernels:9.2f} ms   {kernels / new:.1f} times ours")
        delete_all(connection)

        def one(number):
            mine = Connection(path)
            context = create(mine)
            assert run(mine, context, f"x = {number}; x") == [str(number)]
            assert run(mine, context, "x") == [str(number)]
            return int(run(mine, context, "__import__('os').getpid()")[0])

        with ThreadPoolExecutor(CONTEXTS) as pool:
            begun = time.perf_counter()
            pids = list(pool.map(one, range(CONTEXTS)))
            took = (time.perf_counter() - begun) * 1000
        print(f"{f'{CONTEXTS} contexts at once, three results each, all done':58} {took:9.2f} ms")
        idle = memory_kib(pids)
        # Each kind alone with its likes, so that the same pages are shared by as many.
        delete_all(connection)
        show("memory of an idle context", idle, 1.2 * bare_interpreters_kib(), "KiB")
    finally:
        daemon.terminate()
        daemon.wait(DEADLINE_SECONDS)
    if missed:
        sys.exit("missed: " + "; ".join(missed))


main()
