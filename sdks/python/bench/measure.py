"""One SDK's part of the bench: prints its numbers as one line of JSON. `run` starts it."""

import asyncio
import json
import os
import resource
import socket
import statistics
import sys
import threading
import time

LINES = 1_000_000
SANDBOXES = 200
ROUNDS = 15


class Timer:
    """A relay in front of the server that adds up the time in which an answer is being waited for."""

    def __init__(self, upstream):
        host, port = upstream.rsplit(":", 1)
        self.upstream = (host, int(port))
        self.waiting = 0.0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.upstream)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            state = {"since": None}
            threading.Thread(target=self.up, args=(client, server, state), daemon=True).start()
            threading.Thread(target=self.down, args=(server, client, state), daemon=True).start()

    def up(self, client, server, state):
        try:
            while data := client.recv(65536):
                if state["since"] is None:
                    state["since"] = time.perf_counter()
                server.sendall(data)
        except OSError:
            pass
        server.close()

    def down(self, server, client, state):
        try:
            while data := server.recv(65536):
                since, state["since"] = state["since"], None
                if since is not None:
                    with self.lock:
                        self.waiting += time.perf_counter() - since
                client.sendall(data)
        except OSError:
            pass
        client.close()


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ours():
    from osb import Client, Config, Sandbox, Stdout

    key = os.environ["OPEN_SANDBOX_API_KEY"]
    timer = Timer(os.environ["OPEN_SANDBOX_DOMAIN"])
    whole, own = [], []
    for _ in range(ROUNDS):
        client = Client(Config(timer.address, key))
        timer.waiting = 0.0
        started = time.perf_counter()
        sandbox = Sandbox.create("host", client=client)
        sandbox.commands.run("echo hello")
        took = time.perf_counter() - started
        whole.append(took * 1000)
        own.append((took - timer.waiting) * 1000)
        sandbox.kill()
    with Sandbox.create("host") as sandbox:
        for event in sandbox.commands.start(f"seq 1 {LINES // 10}"):
            pass
        before, started, lines = peak(), time.perf_counter(), 0
        for event in sandbox.commands.start(f"seq 1 {LINES}"):
            if type(event) is Stdout:
                lines += event.text.count("\n")
        took = time.perf_counter() - started
        assert lines == LINES, lines
    return whole, own, LINES / took, peak() - before, {}


async def ours_async():
    from osb import AsyncClient, AsyncSandbox, Config, Stdout

    key = os.environ["OPEN_SANDBOX_API_KEY"]
    timer = Timer(os.environ["OPEN_SANDBOX_DOMAIN"])
    whole, own = [], []
    for _ in range(ROUNDS):
        client = AsyncClient(Config(timer.address, key))
        timer.waiting = 0.0
        started = time.perf_counter()
        sandbox = await AsyncSandbox.create("host", client=client)
        await sandbox.commands.run("echo hello")
        took = time.perf_counter() - started
        whole.append(took * 1000)
        own.append((took - timer.waiting) * 1000)
        await sandbox.kill()
    async with AsyncSandbox.create("host") as sandbox:
        async for event in await sandbox.commands.start(f"seq 1 {LINES // 10}"):
            pass
        before, started, lines = peak(), time.perf_counter(), 0
        async for event in await sandbox.commands.start(f"seq 1 {LINES}"):
            if type(event) is Stdout:
                lines += event.text.count("\n")
        took = time.perf_counter() - started
        assert lines == LINES, lines
    memory, speed = peak() - before, LINES / took
    client = AsyncClient()
    before = threading.active_count()
    started = time.perf_counter()

    async def use(number):
        async with AsyncSandbox.create("host", client=client, resources={"memory": "64Mi", "cpu": "0.1"},
                                       ready_timeout=120) as sandbox:
            output = await sandbox.commands.run(f"echo {number}")
            assert output.stdout == f"{number}\n", output
            return threading.active_count()

    threads = max(await asyncio.gather(*[use(number) for number in range(SANDBOXES)])) - before
    return whole, own, speed, memory, {"200 sandboxes at once, s": time.perf_counter() - started,
                                       "threads for them": float(threads)}


async def theirs():
    from opensandbox import Sandbox
    from opensandbox.config import ConnectionConfig

    key = os.environ["OPEN_SANDBOX_API_KEY"]
    timer = Timer(os.environ["OPEN_SANDBOX_DOMAIN"])
    whole, own = [], []
    for _ in range(ROUNDS):
        config = ConnectionConfig(domain=timer.address, api_key=key)
        timer.waiting = 0.0
        started = time.perf_counter()
        sandbox = await Sandbox.create("host", connection_config=config)
        await sandbox.commands.run("echo hello")
        took = time.perf_counter() - started
        whole.append(took * 1000)
        own.append((took - timer.waiting) * 1000)
        await sandbox.kill()
        await sandbox.close()
    sandbox = await Sandbox.create("host", connection_config=ConnectionConfig(domain=os.environ["OPEN_SANDBOX_DOMAIN"], api_key=key))
    await sandbox.commands.run(f"seq 1 {LINES // 10}")
    before, started = peak(), time.perf_counter()
    execution = await sandbox.commands.run(f"seq 1 {LINES}")
    took = time.perf_counter() - started
    assert execution.logs.stdout
    await sandbox.kill()
    await sandbox.close()
    return whole, own, LINES / took, peak() - before, {}


def theirs_sync():
    from opensandbox import SandboxSync
    from opensandbox.config import ConnectionConfigSync

    key = os.environ["OPEN_SANDBOX_API_KEY"]
    timer = Timer(os.environ["OPEN_SANDBOX_DOMAIN"])
    whole, own = [], []
    for _ in range(ROUNDS):
        config = ConnectionConfigSync(domain=timer.address, api_key=key)
        timer.waiting = 0.0
        started = time.perf_counter()
        sandbox = SandboxSync.create("host", connection_config=config)
        sandbox.commands.run("echo hello")
        took = time.perf_counter() - started
        whole.append(took * 1000)
        own.append((took - timer.waiting) * 1000)
        sandbox.kill()
        sandbox.close()
    sandbox = SandboxSync.create("host", connection_config=ConnectionConfigSync(domain=os.environ["OPEN_SANDBOX_DOMAIN"], api_key=key))
    sandbox.commands.run(f"seq 1 {LINES // 10}")
    before, started = peak(), time.perf_counter()
    sandbox.commands.run(f"seq 1 {LINES}")
    took = time.perf_counter() - started
    sandbox.kill()
    sandbox.close()
    return whole, own, LINES / took, peak() - before, {}


def main(name):
    parts = {"osb": ours, "osb-async": lambda: asyncio.run(ours_async()), "opensandbox": lambda: asyncio.run(theirs()),
             "opensandbox-sync": theirs_sync}
    whole, own, speed, memory, further = parts[name]()
    print(json.dumps({
        "create to first output, ms": statistics.median(whole), "of it the client's own, ms": statistics.median(own),
        "a million lines, lines/s": speed, "memory that took more, MiB": memory, **further,
    }))


if __name__ == "__main__":
    main(sys.argv[1])
