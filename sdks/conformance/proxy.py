"""A proxy that breaks connections on purpose, between an SDK and the server.

Speaks HTTP/1.1 with kept connections and passes upgrades through. Every request is recorded; rules
say what goes wrong with which request. Nothing here waits for a while: a fault happens at a byte.

The faults of a rule, of which it names one:
  drop    the connection is closed when the request has come, and the server never sees it
  reset   the same with a TCP reset
  status  the proxy answers by itself: {"status": 503, "headers": {...}, "body": ...}
  raw     the proxy answers these characters and closes
  cut     the answer's body is closed after so many bytes, as they are on the wire
  stall   the answer's body goes silent after so many bytes, until the proxy is told to release
  lose    the server gets the request, and its answer is thrown away
"""

import asyncio
import fnmatch
import json
import socket
import struct
import threading

HEAD_BYTES_MAX = 64 * 1024
PIECE_BYTES = 64 * 1024
FAULTS = {"drop", "reset", "status", "raw", "cut", "stall", "lose"}


class Rule:
    """One fault, for the requests it matches, after `skip` of them and at most `times` times."""

    def __init__(self, given):
        unknown = set(given) - FAULTS - {"method", "path", "skip", "times", "headers", "body"}
        if unknown or len(FAULTS & set(given)) != 1:
            raise ValueError(f"a rule has one fault of {sorted(FAULTS)}, and no {sorted(unknown)}: {given}")
        self.given = given
        self.skip = given.get("skip", 0)
        self.times = given.get("times", 1)
        self.used = 0

    def applies(self, method, path):
        wanted = self.given.get("method", method)
        if wanted != method or not fnmatch.fnmatchcase(path, self.given.get("path", "*")):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None and self.used >= self.times:
            return False
        self.used += 1
        return True


class Proxy:
    """Runs in a thread of its own; every method may be called from any thread."""

    def __init__(self):
        self.upstream = None
        self.rules = []
        self.requests = []
        self.bodies = []
        self.released = None
        self.connections = set()
        self.tasks = set()
        self.idle = set()
        self.server = None
        self.port = 0
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.do(self._listen())

    def do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def reset(self, upstream):
        """Forgets rules and requests, and passes everything on to this address."""
        async def change():
            self.upstream = upstream
            self.rules, self.requests, self.bodies = [], [], []
            await self._end()
            if self.server is None:
                await self._listen()
            self.released = asyncio.Event()
        self.do(change())

    def command(self, order):
        """What a step of a scenario says."""
        if isinstance(order, dict):
            self.rules.append(Rule(order))
        elif order == "clear":
            self.rules = []
        elif order == "forget":
            self.requests, self.bodies = [], []
        elif order == "release":
            self.loop.call_soon_threadsafe(self.released.set)
        elif order == "drop_idle":
            self.do(self._drop(self.idle))
        elif order == "drop_all":
            self.do(self._drop(self.connections))
        elif order == "refuse":
            self.do(self._refuse())
        elif order == "accept":
            self.do(self._listen())
        else:
            raise ValueError(f"the proxy does not know {order!r}")

    def close(self):
        """Ends everything that is under way."""
        self.do(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _end(self):
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drop(self, writers):
        for writer in list(writers):
            writer.close()
        for writer in list(writers):
            try:
                await writer.wait_closed()
            except OSError:
                pass

    async def _listen(self):
        if self.released is None:
            self.released = asyncio.Event()
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=HEAD_BYTES_MAX)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _refuse(self):
        self.server.close()
        self.server = None
        await self._drop(self.connections)

    async def _serve(self, reader, writer):
        self.connections.add(writer)
        # The loop itself holds a task only weakly.
        task = asyncio.current_task()
        self.tasks.add(task)
        upstream = Upstream(self)
        try:
            while True:
                self.idle.add(writer)
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                finally:
                    self.idle.discard(writer)
                if not await self._exchange(head, reader, writer, upstream):
                    return
        except (OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            self.tasks.discard(task)
            self.connections.discard(writer)
            writer.close()
            upstream.close()

    async def _exchange(self, head, reader, writer, upstream):
        """One request and its answer; whether the connection may carry another."""
        first, headers = parse(head)
        method, target = first.split(" ")[:2]
        path = target.split("?")[0]
        self.requests.append({"method": method, "path": path, "target": target, "headers": headers})
        rule = next((rule for rule in self.rules if rule.applies(method, path)), None)
        fault = rule.given if rule else {}
        if "drop" in fault or "reset" in fault:
            if "reset" in fault:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        if "raw" in fault:
            writer.write(fault["raw"].encode())
            await writer.drain()
            return False
        if "status" in fault:
            async for _ in body_of(reader, headers, is_request=True):
                pass
            writer.write(made_up(fault))
            await writer.drain()
            return True
        await upstream.send(head, body_of(reader, headers, is_request=True))
        answer_head = await upstream.reader.readuntil(b"\r\n\r\n")
        status_line, answer = parse(answer_head)
        status = int(status_line.split(" ")[1])
        if "lose" in fault:
            return False
        writer.write(answer_head)
        if status == 101:
            await writer.drain()
            await self._upgraded(reader, writer, upstream, fault)
            return False
        record = {"method": method, "path": path, "body": b""}
        self.bodies.append(record)
        has_body = method != "HEAD" and status not in (204, 304)
        left = fault.get("cut", fault.get("stall"))
        async for piece in body_of(upstream.reader, answer, is_request=False) if has_body else nothing():
            # Enough to find a stream's events in; a large download is not kept.
            if len(record["body"]) < HEAD_BYTES_MAX:
                record["body"] += piece
            if left is not None and len(piece) >= left:
                writer.write(piece[:left])
                await writer.drain()
                if "cut" in fault:
                    return False
                await self.released.wait()
                piece, left = piece[left:], None
            elif left is not None:
                left -= len(piece)
            writer.write(piece)
            await writer.drain()
        if left is not None and "cut" in fault:
            return False
        keeps = headers.get("connection", "").lower() != "close" and answer.get("connection", "").lower() != "close"
        return keeps and (not has_body or "content-length" in answer or "transfer-encoding" in answer)

    async def _upgraded(self, reader, writer, upstream, fault):
        left = fault.get("cut")

        async def up():
            while piece := await reader.read(PIECE_BYTES):
                upstream.writer.write(piece)
                await upstream.writer.drain()
            if upstream.writer.can_write_eof():
                upstream.writer.write_eof()

        async def down():
            nonlocal left
            while piece := await upstream.reader.read(PIECE_BYTES):
                if left is not None and len(piece) >= left:
                    writer.write(piece[:left])
                    await writer.drain()
                    return
                left = None if left is None else left - len(piece)
                writer.write(piece)
                await writer.drain()

        upward = asyncio.ensure_future(up())
        try:
            await down()
        finally:
            upward.cancel()


class Upstream:
    """The connection to the server that belongs to one connection of a client."""

    def __init__(self, proxy):
        self.proxy = proxy
        self.reader = self.writer = None

    async def send(self, head, body):
        if self.writer is not None and self.reader.at_eof():
            self.close()
        if self.writer is None:
            host, port = self.proxy.upstream.rsplit(":", 1)
            self.reader, self.writer = await asyncio.open_connection(host, int(port), limit=HEAD_BYTES_MAX)
        self.writer.write(head)
        async for piece in body:
            self.writer.write(piece)
            await self.writer.drain()
        await self.writer.drain()

    def close(self):
        if self.writer is not None:
            self.writer.close()
            self.reader = self.writer = None


async def nothing():
    for piece in ():
        yield piece


def parse(head):
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        if ":" in line:
            name, value = line.split(":", 1)
            headers[name.strip().lower()] = value.strip()
    return lines[0], headers


async def body_of(reader, headers, is_request):
    """The pieces of a body as they are on the wire, its framing included. The first event of a stream is made a
    chunk of its own: how many events a busy server puts into a chunk is chance, and the length of the line
    before the chunk, so the place of every byte after it, would be, too."""
    if "chunked" in headers.get("transfer-encoding", "").lower():
        is_first = not is_request
        while True:
            line = await reader.readuntil(b"\r\n")
            if is_first and 0 < int(line.split(b";")[0], 16) <= PIECE_BYTES:
                is_first = False
                chunk = (await reader.readexactly(int(line.split(b";")[0], 16) + 2))[:-2]
                end = chunk.find(b"\n\n") + 2
                for part in (chunk[:end], chunk[end:]) if end > 1 else (chunk,):
                    if part:
                        yield b"%x\r\n%s\r\n" % (len(part), part)
                continue
            yield line
            size = int(line.split(b";")[0], 16)
            left = size + 2
            while left:
                piece = await reader.read(min(left, PIECE_BYTES))
                if not piece:
                    raise EOFError
                left -= len(piece)
                yield piece
            if size == 0:
                return
    left = int(headers.get("content-length", 0 if is_request else -1))
    while left:
        piece = await reader.read(PIECE_BYTES if left < 0 else min(left, PIECE_BYTES))
        if not piece:
            if left > 0:
                raise EOFError
            return
        left -= len(piece) if left > 0 else 0
        yield piece


def made_up(fault):
    body = fault.get("body", "")
    text = body if isinstance(body, str) else json.dumps(body)
    headers = {"Content-Length": str(len(text.encode())), **fault.get("headers", {})}
    if not isinstance(body, str):
        headers.setdefault("Content-Type", "application/json")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {fault['status']} Made up\r\n{lines}\r\n{text}".encode()
