"""Tests of the fault proxy itself, which `run --check` runs: the place of a byte on the wire must be no chance."""

import http.client
import socket
import threading
import unittest

from proxy import Proxy

FIRST, SECOND, THIRD = b'{"type":"init"}\n\n', b'{"type":"ping"}\n\n', b'{"type":"stdout","text":"%s"}\n\n' % (b"x" * 300)


class Upstream:
    """A server that answers every connection with the same stream, in these chunks."""

    def __init__(self, chunks):
        self.body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + self.body)


def through(proxy, chunks, rule=None):
    """What a client reads through the proxy, and what it would have read on the wire."""
    upstream = Upstream(chunks)
    proxy.reset(upstream.address)
    if rule:
        proxy.command(rule)
    connection = http.client.HTTPConnection(proxy.address, timeout=10)
    connection.request("POST", "/command")
    try:
        body = connection.getresponse().read()
    except http.client.IncompleteRead as error:
        body = error.partial
    connection.close()
    upstream.socket.close()
    return body, proxy.bodies[0]["body"]


class FirstEvent(unittest.TestCase):
    def setUp(self):
        self.proxy = Proxy()
        self.addCleanup(self.proxy.close)

    def test_is_a_chunk_of_its_own_however_the_server_put_it(self):
        apart, wire_apart = through(self.proxy, [FIRST, SECOND, THIRD])
        for chunks in ([FIRST + SECOND, THIRD], [FIRST + SECOND + THIRD]):
            together, wire = through(self.proxy, chunks)
            self.assertEqual(together, apart)
            self.assertEqual(wire.index(b"\n\n"), wire_apart.index(b"\n\n"))

    def test_is_whole_when_cut_behind_it(self):
        _, wire = through(self.proxy, [FIRST, SECOND])
        known = wire.index(b"\n\n") + 2
        for chunks in ([FIRST, SECOND], [FIRST + SECOND + THIRD]):
            body, _ = through(self.proxy, chunks, {"method": "POST", "path": "*", "cut": known})
            self.assertEqual(body, FIRST)

    def test_streams_without_events_pass_as_they_are(self):
        body, _ = through(self.proxy, [b"a" * 100000, b"b"])
        self.assertEqual(body, b"a" * 100000 + b"b")
        self.assertEqual(through(self.proxy, [b"a\n", b"b"])[0], b"a\nb")


if __name__ == "__main__":
    unittest.main()
