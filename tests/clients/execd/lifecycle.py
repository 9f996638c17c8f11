"""A stand-in for the lifecycle server: it knows one sandbox, which is the execd under test.

The SDKs reach execd only through the address a server gives them. Which sandbox that is and how it
was made is another suite's business, so the few answers they need are given here.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SANDBOX = {
    "id": "the-sandbox",
    "status": {"state": "Running"},
    "createdAt": "2026-01-01T00:00:00Z",
    "expiresAt": "2099-01-01T00:00:00Z",
    "entrypoint": ["tail", "-f", "/dev/null"],
    "image": {"uri": "none"},
    "metadata": {},
}


class Lifecycle:
    """Answers on loopback until closed, from a thread of its own."""

    def __init__(self, execd_address, execd_headers):
        endpoint = {"endpoint": execd_address, "headers": execd_headers}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.command == "POST" and self.path == "/v1/sandboxes":
                    return self.send(202, SANDBOX)
                if self.command == "DELETE":
                    return self.send(204)
                if re.match(r"/v1/sandboxes/[^/]+/endpoints/\d+", self.path):
                    return self.send(200, endpoint)
                if re.fullmatch(r"/v1/sandboxes/[^/]+", self.path):
                    return self.send(200, SANDBOX)
                return self.send(404, {"code": "NOT_FOUND", "message": self.path})

            do_GET = do_POST = do_DELETE = answer

            def send(self, status, body=None):
                data = b"" if body is None else json.dumps(body).encode()
                self.send_response(status)
                if data:
                    self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = "127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
