"""The internet of the bypass cases: nameservers that say what they like, and servers that tell who reached
them. Runs in the namespace that plays the outside, until its standard input ends."""
import socket
import socketserver
import struct
import sys
import threading

FAR, A, B = "192.0.2.80", "192.0.2.81", "192.0.2.82"
ADDRESSES = {
    "a.test": A, "b.test": B, "w.test": B, "x.w.test": A, "shared.test": A,
    "metadata.w.test": "169.254.169.254", "host.w.test": "203.0.113.9", "gate.w.test": "10.88.0.1",
    "loopback.w.test": "127.0.0.1", "private.w.test": "10.1.2.3", "cgnat.w.test": "100.64.0.1",
}
ALIASES = {"alias.w.test": "b.test"}


def labels(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def answer(query):
    at, name = 12, []
    while query[at]:
        name.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    question, kind = query[12:at + 5], struct.unpack(">H", query[at + 1:at + 3])[0]
    name = ".".join(name).lower()
    records = []
    if kind == 1 and name in ALIASES:
        target = ALIASES[name]
        data = labels(target)
        records.append(b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 60, len(data)) + data)
        records.append(data + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(ADDRESSES[target]))
    elif kind == 1 and name in ADDRESSES:
        records.append(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(ADDRESSES[name]))
    elif kind == 16:
        records.append(b"\xc0\x0c" + struct.pack(">HHIH", 16, 1, 60, 5) + b"\x04text")
    code = 0 if records or name in ADDRESSES else 3
    return query[:2] + bytes([0x81, 0x80 | code]) + struct.pack(">HHHH", 1, len(records), 0, 0) + question + b"".join(records)


class DnsUdp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(answer(data), self.client_address)


class DnsTcp(socketserver.StreamRequestHandler):
    def handle(self):
        length = struct.unpack(">H", self.rfile.read(2))[0]
        reply = answer(self.rfile.read(length))
        self.wfile.write(struct.pack(">H", len(reply)) + reply)


class Http(socketserver.StreamRequestHandler):
    """Answers each request with the host that it named, until one says that it is the last."""
    timeout = 2

    def handle(self):
        try:
            self.answer_all()
        except TimeoutError:
            pass

    def answer_all(self):
        while True:
            line = self.rfile.readline()
            while line in (b"\r\n", b"\n"):
                line = self.rfile.readline()
            if not line:
                return
            fields = []
            while (field := self.rfile.readline()) not in (b"\r\n", b"\n", b""):
                fields.append(field.decode("latin-1").strip().lower())
            hosts = [f.split(":", 1)[1].strip() for f in fields if f.startswith("host")]
            target = line.decode("latin-1").split(" ")[1] if b" " in line else ""
            body = f"REACHED {' '.join(hosts)} {target}".encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            if "connection: close" in fields:
                return


class Marker(socketserver.BaseRequestHandler):
    """Tells whoever says anything that it got here."""

    def handle(self):
        self.request.recv(65536)
        self.request.sendall(b"REACHED")


class Banner(socketserver.BaseRequestHandler):
    """Speaks first, and says back what it hears."""

    def handle(self):
        self.request.sendall(b"REACHED banner\n")
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(b"REACHED " + data, self.client_address)


class Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """Connections that the gate resets are what is tested, and no error."""


servers = [socketserver.ThreadingUDPServer((FAR, 53), DnsUdp), Tcp((FAR, 53), DnsTcp)]
for address in (A, B):
    servers += [Tcp((address, port), Http) for port in (80, 8080)]
    servers += [Tcp((address, port), Marker) for port in (443, 853, 8443)]
    servers += [Tcp((address, 2222), Banner)]
    servers += [socketserver.ThreadingUDPServer((address, port), Echo) for port in (53, 443, 5000)]
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
