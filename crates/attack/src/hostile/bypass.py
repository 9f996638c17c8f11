"""What a sandbox tries. Each attack is true when it reached what it must not; the program then ends with 1,
and with 0 when it was stopped. `ready` says how to reach what may be reached, so that a sandbox without any
network does not count as one that stopped an attack."""
import socket
import struct
import sys

A, B, FAR = "192.0.2.81", "192.0.2.82", "192.0.2.80"
WAIT = 20


def tcp(address, port, data=b"", more=None):
    """What comes back; nothing where the connection is refused, reset or ended."""
    got = b""
    try:
        with socket.create_connection((address, port), WAIT) as s:
            if data:
                s.sendall(data)
            if more:
                got += s.recv(65536)
                s.sendall(more)
            while piece := s.recv(65536):
                got += piece
                if not data:
                    break
    except OSError:
        pass
    return got


def udp(address, port, data=b"probe"):
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(3)
            s.connect((address, port))
            s.send(data)
            return s.recv(65536)
    except OSError:
        return b""


def get(host, *fields, method="GET", target="/"):
    lines = [f"{method} {target} HTTP/1.1"] + ([f"Host: {host}"] if host else []) + list(fields)
    return ("\r\n".join(lines + ["Connection: close"]) + "\r\n\r\n").encode()


def hello(name, ech=False, piece=1 << 14):
    vector = lambda b: struct.pack(">H", len(b)) + b
    extensions = b""
    if name:
        extensions += struct.pack(">H", 0) + vector(vector(b"\0" + vector(name.encode())))
    if ech:
        extensions += struct.pack(">H", 0xFE0D) + vector(b"\0")
    body = b"\x03\x03" + bytes(32) + b"\0" + vector(b"\x13\x01") + b"\x01\0" + vector(extensions)
    message = b"\x01" + struct.pack(">I", len(body))[1:] + body
    parts = [message[i:i + piece] for i in range(0, len(message), piece)]
    return b"".join(b"\x16\x03\x01" + vector(part) for part in parts)


def ask(name, server=None, over_tcp=False, kind=1):
    """The addresses of a name, or the data of its records of another kind."""
    if server is None:
        with open("/etc/resolv.conf") as f:
            server = next(line.split()[1] for line in f if line.startswith("nameserver"))
    labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"
    query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" + labels + struct.pack(">HH", kind, 1)
    if over_tcp:
        reply = tcp(server, 53, struct.pack(">H", len(query)) + query)[2:]
    else:
        reply = udp(server, 53, query)
    if len(reply) < 12 or reply[3] & 15 or not struct.unpack(">H", reply[6:8])[0]:
        return []
    return [socket.inet_ntoa(reply[-4:])]


def reached(answer, host="b.test"):
    return b"REACHED " + host.encode() in answer


def told(name="a.test"):
    assert ask(name), f"{name} has no address"
    return True


def ping(address):
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
            s.settimeout(3)
            s.sendto(b"\x08\0\0\0\0\0\0\x01", (address, 0))
            return s.recv(100)
    except OSError:
        return b""


def later(is_open):
    """Waits until the sandbox, whose network led elsewhere or nowhere, leads to the gate; whether it then reaches
    what the rules do not allow."""
    routes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    routes.bind((0, 0x40))  # RTMGRP_IPV4_ROUTE
    routes.settimeout(WAIT)
    held = meeting = None
    with open("/proc/net/route") as f:
        is_there = any(line.split()[1] == "00000000" for line in f)
    if is_open:
        held = socket.create_connection((B, 2222), WAIT)
        assert held.recv(100)
        meeting = socket.create_connection((B, 2300), WAIT)
        is_there = False
    while not is_there:
        event = routes.recv(65536)
        # RTM_NEWROUTE to everywhere (rtnetlink(7)).
        is_there = struct.unpack_from("=IH", event)[1] == 24 and event[17] == 0
    assert ask("a.test", over_tcp=True) == [A] and reached(tcp(A, 80, get("a.test")), "a.test")
    try:
        if held:
            held.sendall(b"go")
        is_held = bool(held and held.recv(100))
    except OSError:
        is_held = False
    return is_held or reached(tcp(B, 80, get("b.test"))) or ask("b.test", over_tcp=True) or udp(B, 5000)


def is_cut():
    """Holds a connection by name and one by address, says so, and waits for the end of the first."""
    told()
    by_name = socket.create_connection((A, 2222), WAIT)
    by_address = socket.create_connection((B, 2222), WAIT)
    assert by_name.recv(100) and by_address.recv(100)
    meeting = socket.create_connection((B, 2300), WAIT)
    try:
        cut = by_name.recv(100) == b""
    except TimeoutError:
        cut = False
    except OSError:
        cut = True
    by_address.sendall(b"go")
    return cut and by_address.recv(100) == b"go" and bool(meeting)


def over_ipv6(address, port):
    try:
        with socket.create_connection((address, port), WAIT):
            return True
    except OSError:
        return False


try:
    verdict = eval(sys.argv[1])
except Exception as error:
    print("the attack is broken:", repr(error))
    sys.exit(2)
print(repr(verdict)[:200])
sys.exit(1 if verdict else 0)
