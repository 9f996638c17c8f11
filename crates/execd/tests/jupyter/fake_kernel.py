"""A kernel made of sockets alone that misbehaves in the way its second argument names.

Cells are told to it as text: it prints them back. Used to see that execd believes nothing that
is not signed, waits for nothing that will not come, and survives bytes that mean nothing.
"""

import hashlib
import hmac
import json
import os
import signal
import socket
import sys
import threading
import uuid

info = json.load(open(sys.argv[1]))
manner = sys.argv[2]


def listen(name):
    server = socket.create_server((info["ip"], info[name + "_port"]))
    return server


def exactly(connection, size):
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def put(connection, parts):
    out = b""
    for index, part in enumerate(parts):
        more = index + 1 < len(parts)
        if len(part) < 256:
            out += bytes([more, len(part)]) + part
        else:
            out += bytes([2 | more]) + len(part).to_bytes(8, "big") + part
    connection.sendall(out)


def get(connection):
    parts = []
    while True:
        flags = exactly(connection, 1)[0]
        size = int.from_bytes(exactly(connection, 8 if flags & 2 else 1), "big")
        body = exactly(connection, size)
        if flags & 4:
            continue
        parts.append(body)
        if not flags & 1:
            return parts


def greet(connection, kind):
    connection.sendall(b"\xff" + b"\0" * 8 + b"\x7f\x03\x00NULL" + b"\0" * 48)
    exactly(connection, 64)
    body = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    connection.sendall(bytes([4, len(body)]) + body)


def sign(key, frames):
    return hmac.new(key.encode(), b"".join(frames), hashlib.sha256).hexdigest().encode()


def message(kind, parent, content, key=info["key"]):
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "fake", "username": "k",
              "date": "2026-01-01T00:00:00Z", "version": "5.3"}
    frames = [json.dumps(part).encode() for part in (header, parent, {}, content)]
    return [b"<IDS|MSG>", sign(key, frames), *frames]


servers = {name: listen(name) for name in ("shell", "iopub", "control", "stdin", "hb")}
if manner == "deaf":
    signal.pause()
connections = {}
for name, kind in (("iopub", b"PUB"), ("shell", b"ROUTER"), ("control", b"ROUTER"), ("stdin", b"ROUTER")):
    connections[name], _ = servers[name].accept()
    if manner == "stranger":
        connections[name].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 64)
        signal.pause()
    greet(connections[name], kind)
iopub, shell, stdin = connections["iopub"], connections["shell"], connections["stdin"]


def publish(kind, parent, content, **options):
    put(iopub, [b"topic", *message(kind, parent, content, **options)])


def drain(connection):
    try:
        while connection.recv(65536):
            pass
    except OSError:
        pass


threading.Thread(target=drain, args=(connections["control"],), daemon=True).start()
count = 0
while True:
    parts = get(shell)
    at = parts.index(b"<IDS|MSG>")
    signature, frames = parts[at + 1], parts[at + 2:at + 6]
    assert signature == sign(info["key"], frames), "execd signs what it sends"
    request, content = json.loads(frames[0]), json.loads(frames[3])
    publish("status", request, {"execution_state": "busy"})
    if request["msg_type"] == "kernel_info_request":
        put(shell, message("kernel_info_reply", request, {"status": "ok"}))
        if manner == "mute" and count:
            continue
        publish("status", request, {"execution_state": "idle"})
        continue
    count += 1
    code = content["code"]
    if code == "die":
        os._exit(7)
    if manner == "forged":
        # What somebody without the key would send to end the cell early and speak for it.
        publish("stream", request, {"name": "stdout", "text": "forged"}, key="guess")
        publish("status", request, {"execution_state": "idle"}, key="guess")
        put(shell, message("execute_reply", request, {"status": "ok"}, key="guess"))
        put(shell, [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"])
        put(shell, [b"nothing of the kind"])
    if manner == "garbled" and code == "garble":
        shell.sendall(b"\xf8" * 100)
        signal.pause()
    if manner == "asking":
        put(stdin, message("input_request", request, {"prompt": "?", "password": False}))
        answer = get(stdin)
        value = json.loads(answer[answer.index(b"<IDS|MSG>") + 5])["value"]
        code = repr(value)
    if manner == "variables":
        code = os.environ[code]
    if manner == "large":
        publish("stream", request, {"name": "stdout", "text": "x" * (33 << 20)})
    publish("stream", request, {"name": "stdout", "text": code})
    put(shell, message("execute_reply", request, {"status": "ok", "execution_count": count}))
    if manner not in ("forgetful", "mute"):
        publish("status", request, {"execution_state": "idle"})
