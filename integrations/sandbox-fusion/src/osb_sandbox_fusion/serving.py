"""HTTP around a `Runner`. No authentication: it is for an address that only its users reach."""

import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .running import Refused, Runner

REQUEST_BYTES_MAX = 64 * 1024 * 1024
# A client that sends nothing for so long loses its connection, in seconds.
SILENCE_MAX = 60


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SILENCE_MAX
    server: "Server"

    def do_GET(self) -> None:
        if self.path == "/v1/ping":
            self.say(200, "pong")
        else:
            self.say(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        if self.path != "/run_code":
            # What was sent is not read, so that the next request cannot be told from it.
            self.close_connection = True
            return self.say(404, {"detail": "Not Found"})
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > REQUEST_BYTES_MAX:
            self.close_connection = True
            return self.say(413, {"detail": f"a request has a Content-Length of at most {REQUEST_BYTES_MAX}"})
        try:
            request = json.loads(self.rfile.read(int(length)))
            self.say(200, self.server.runner.run(request))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            self.say(422, {"detail": f"the request is not JSON: {error}"})
        except Refused as error:
            self.say(422, {"detail": str(error)})

    def say(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:
        """Nothing: a trainer asks some hundred times a second."""


class Server(ThreadingHTTPServer):
    # A trainer opens as many connections as it has test cases.
    request_queue_size = 1024
    daemon_threads = True

    def __init__(self, address: tuple[str, int], runner: Runner) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)
        self.runner = runner


def serve(runner: Runner, host: str = "127.0.0.1", port: int = 8081) -> Server:
    """A server that is bound; `serve_forever` answers, `shutdown` ends that."""
    return Server((host, port), runner)
