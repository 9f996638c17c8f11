"""Why a sandbox cannot be had or used: every client shows the reason, and shows it soon."""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from conftest import BACKEND, IMAGE, done, free_port
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


async def refused(attempt):
    """What the client says of an attempt that must fail, and when it said it."""
    with pytest.raises(SandboxException) as failure:
        await done(attempt)
    return str(failure.value), time.monotonic()


@only_embedded
async def test_an_image_that_no_registry_has(client):
    with Registry(wait=0) as registry:
        message, at = await refused(client.create(registry.reference))
    assert at - registry.refused_at < SHOWN_WITHIN
    assert registry.reference in message and "was not found" in message, message


@only_embedded
async def test_a_registry_that_refuses_after_the_creation_was_answered(client):
    with Registry(wait=SLOW_REGISTRY) as registry:
        message, at = await refused(client.create(registry.reference))
    assert at - registry.refused_at < SHOWN_WITHIN
    assert registry.reference in message and "was not found" in message, message


@only_embedded
async def test_a_registry_that_cannot_be_reached(client):
    begun = time.monotonic()
    message, at = await refused(client.create(f"127.0.0.1:{free_port()}/a/b:1"))
    assert at - begun < SHOWN_WITHIN
    assert "could not be pulled" in message, message


async def test_an_entrypoint_that_ends_at_once(client):
    begun = time.monotonic()
    message, at = await refused(client.create(IMAGE, entrypoint=["sh", "-c", "exit 3"]))
    assert at - begun < SHOWN_WITHIN
    assert "exit code 3" in message, message


async def test_a_paused_sandbox_says_that_it_is_paused(client):
    sandbox = await client.create()
    await done(sandbox.pause())
    begun = time.monotonic()
    message, at = await refused(client.connect(sandbox.id))
    assert at - begun < SHOWN_WITHIN
    assert "paused" in message and "resume" in message, message
    begun = time.monotonic()
    message, at = await refused(sandbox.commands.run("true"))
    assert at - begun < SHOWN_WITHIN
    assert "paused" in message and "resume" in message, message
