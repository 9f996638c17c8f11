"""Servers of OpenEnv environments in sandboxes of an OSB server (or any OpenSandbox server).

    with OsbProvider("echo-env:latest", cwd="/app/env") as provider:
        with EchoEnv(provider=provider).sync() as env:
            env.reset()
"""

from __future__ import annotations

import http.client
import socketserver
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from openenv.core.containers.runtime.providers import ContainerProvider
from osb import OsbError, Sandbox, Tunnel

__all__ = ["OsbProvider"]

# What runs in an environment's image, as OpenEnv makes them.
COMMAND = "exec uvicorn server.app:app --host 127.0.0.1 --port {port}"
PORT = 8000
# A sandbox that was forgotten ends by itself after so long, in seconds.
LIFETIME = 3600.0
# A port that begins to listen tells nobody, so that asking again is all there is, in seconds.
ASK_AGAIN = 0.1
READ_BYTES = 64 * 1024


class OsbProvider(ContainerProvider):
    """One sandbox with an environment's server, reached by an address on this machine."""

    def __init__(
        self, image: str | None = None, *, command: str | None = None, cwd: str | None = None, port: int = PORT,
        env: dict[str, str] | None = None, lifetime: float = LIFETIME, **options: Any,
    ) -> None:
        self.sandbox: Sandbox | None = None
        self._image, self._command, self._cwd, self._port = image, command, cwd, port
        self._env, self._options = dict(env or {}), {"lifetime": lifetime, **options}
        self._server: _Forward | None = None
        self._run: str | None = None

    def start_container(
        self, image: str | None = None, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        if self.sandbox is not None:
            raise RuntimeError("this provider has a sandbox already; stop_container ends it")
        port = self._port if port is None else port
        env = {**self._env, **(env_vars or {})}
        try:
            self.sandbox = Sandbox.create(image or self._image, env=env, **self._options, **kwargs)
            command = (self._command or COMMAND).format(port=port)
            self._run = self.sandbox.commands.background(command, cwd=self._cwd)
            self._server = _Forward(self.sandbox, port)
        except OsbError as error:
            self.stop_container()
            raise RuntimeError(f"the environment did not start: {error}") from error
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        address = urlsplit(base_url)
        deadline = time.monotonic() + timeout_s
        while not _is_healthy(address.hostname or "127.0.0.1", address.port or 80, timeout_s):
            if self.sandbox is not None and self._run is not None and not self.sandbox.commands.status(self._run).running:
                raise RuntimeError(f"the environment's server ended:\n{self._log()}")
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the environment was not ready after {timeout_s} s:\n{self._log()}")
            time.sleep(ASK_AGAIN)

    def _log(self) -> str:
        """What the server printed."""
        if self.sandbox is None or self._run is None:
            return ""
        return self.sandbox.commands.logs(self._run).text

    def stop_container(self) -> None:
        server, self._server = self._server, None
        sandbox, self.sandbox = self.sandbox, None
        self._run = None
        if server is not None:
            server.close()
        if sandbox is not None:
            sandbox.kill()
            sandbox.close()

    def close(self) -> None:
        self.stop_container()


def _is_healthy(host: str, port: int, timeout: float) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _Forward(socketserver.ThreadingTCPServer):
    """A port of this machine whose connections are those to a port of a sandbox."""

    daemon_threads = True

    def __init__(self, sandbox: Sandbox, port: int) -> None:
        self.sandbox, self.port = sandbox, port
        super().__init__(("127.0.0.1", 0), _Connection)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    server: _Forward

    def handle(self) -> None:
        try:
            tunnel = self.server.sandbox.tunnel(self.server.port)
        except OsbError:
            # Nothing listens there yet; whoever asked sees a connection that ends.
            return
        back = threading.Thread(target=self._back, args=(tunnel,), daemon=True)
        back.start()
        try:
            while data := self.request.recv(READ_BYTES):
                tunnel.write(data)
        except OSError:
            # One of the two ends is gone.
            pass
        tunnel.close()
        back.join()

    def _back(self, tunnel: Tunnel) -> None:
        try:
            while data := tunnel.read():
                self.request.sendall(data)
        except (OSError, OsbError):
            pass
        # The other thread waits for more, and there is nobody to take it.
        self.server.shutdown_request(self.request)
