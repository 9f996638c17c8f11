"""Why a sandbox cannot be had or used: every client shows the reason, and shows it soon."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import BACKEND, IMAGE, done, free_port, newer_than_0_1
from opensandbox.exceptions import SandboxException

# What a client may take to show a reason that the server knows.
SHOWN_WITHIN = 3
# Longer than the server holds the answer to a creation for an early failure.
SLOW_REGISTRY = 2.5

only_embedded = pytest.mark.skipif(BACKEND != "embedded", reason="the engine has no way to a registry of this machine")


class Registry:
    """Says after `wait` seconds that it has no image."""

    def __init__(self, wait):
        registry = self
        self.refused_at = None

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                registry.ended.wait(wait)
                registry.refused_at = registry.refused_at or time.monotonic()
                self.send_response(404)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.ended = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.reference = f"127.0.0.1:{self.server.server_port}/nobody/has-this:1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.server.shutdown()


def assert_says(message, *words):
    assert all(word in message for word in words), message


async def refused(attempt):
    """What the client says of an attempt that must fail, and when it said it."""
    with pytest.raises(SandboxException) as failure:
        await done(attempt())
    return str(failure.value), time.monotonic()


@only_embedded
async def test_an_image_that_no_registry_has(client):
    with Registry(wait=0) as registry:
        message, at = await refused(lambda: client.create(registry.reference))
    assert at - registry.refused_at < SHOWN_WITHIN
    assert_says(message, registry.reference, "was not found")


@only_embedded
async def test_a_registry_that_refuses_after_the_creation_was_answered(client):
    with Registry(wait=SLOW_REGISTRY) as registry:
        message, at = await refused(lambda: client.create(registry.reference))
    assert at - registry.refused_at < SHOWN_WITHIN
    assert_says(message, registry.reference, "was not found")


@only_embedded
async def test_a_registry_that_cannot_be_reached(client):
    begun = time.monotonic()
    message, at = await refused(lambda: client.create(f"127.0.0.1:{free_port()}/a/b:1"))
    assert at - begun < SHOWN_WITHIN
    assert_says(message, "could not be pulled", "cannot be reached")


async def test_an_entrypoint_that_has_ended(client):
    # It ends when it is told to, so that the sandbox is there first.
    ends = "mkfifo /tmp/end; read x </tmp/end; exit 3"
    sandbox = await client.create(IMAGE, entrypoint=["sh", "-c", ends])
    with contextlib.suppress(Exception):
        # The sandbox ends with its entrypoint, and this command with the sandbox.
        await done(sandbox.commands.run("until [ -p /tmp/end ]; do :; done; echo >/tmp/end"))
    while (await done(sandbox.get_info())).status.state == "Running":
        pass
    begun = time.monotonic()
    message, at = await refused(lambda: client.connect(sandbox.id))
    assert at - begun < SHOWN_WITHIN
    assert_says(message, "exit code 3")


async def test_a_paused_sandbox_says_that_it_is_paused(client, caplog):
    sandbox = await client.create()
    await done(sandbox.pause())
    begun = time.monotonic()
    message, at = await refused(lambda: client.connect(sandbox.id))
    assert at - begun < SHOWN_WITHIN
    assert_says(message, "paused", "resume")
    begun = time.monotonic()
    message, at = await refused(lambda: sandbox.commands.run("true"))
    assert at - begun < SHOWN_WITHIN
    if not newer_than_0_1():
        # Of a command it cannot run, SDK 0.1.10 writes the answer to its log, which Python prints by itself.
        message = caplog.text
    assert_says(message, "paused", "resume")
