"""The parts that do no input and output: framing, events, frames of a WebSocket, settings, wire types."""

import io
import json
import os
import re
import sys
import tarfile
import tempfile
import unittest
from datetime import datetime, timezone
from pathlib import Path

from osb import Config, Figure, InvalidArgument, Table, errors, wire
from osb._archive import unpack
from osb._frames import Frames
from osb._http import Address, Body, Head, query, refusal, segment
from osb._toml import read_small
from osb._websocket import BINARY, CLOSE, Decoder, accept_of, encode
from osb._wire import text_from_time, time_from_text
from osb.results import Completed, ErrorEvent, ExecutionFailure, Output, Stdout, result_of


def chunked(*parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class Http(unittest.TestCase):
    def test_chunks_in_any_pieces(self):
        wire_bytes = chunked(b"hello ", b"x" * 300, b"\r\n\r\n")
        whole = b"hello " + b"x" * 300 + b"\r\n\r\n"
        for size in range(1, len(wire_bytes) + 1):
            body = Body("GET", Head(200, {"transfer-encoding": "chunked"}, "HTTP/1.1"), "x")
            got = b"".join(body.feed(wire_bytes[at : at + size]) for at in range(0, len(wire_bytes), size))
            self.assertEqual((got, body.is_done), (whole, True), size)

    def test_half_a_body_is_not_whole(self):
        wire_bytes = chunked(b"hello")
        for end in range(len(wire_bytes)):
            body = Body("GET", Head(200, {"transfer-encoding": "chunked"}, "HTTP/1.1"), "x")
            body.feed(wire_bytes[:end])
            self.assertFalse(body.ends, end)
        body = Body("GET", Head(200, {"content-length": "5"}, "HTTP/1.1"), "x")
        self.assertEqual(body.feed(b"hell"), b"hell")
        self.assertFalse(body.ends)

    def test_lengths_that_are_none(self):
        for text in (b"zz\r\n", b"-5\r\nhello\r\n"):
            with self.assertRaises(errors.Unreadable):
                body = Body("GET", Head(200, {"transfer-encoding": "chunked"}, "HTTP/1.1"), "x")
                body.feed(text)
                if not body.is_done:
                    raise errors.Unreadable("x", "never whole")

    def test_addresses(self):
        found = [(a.host, a.port, a.tls, a.prefix) for a in map(Address, (
            "http://h", "https://h/v1/", "http://[::1]:8/x", "http://h:81/a/b"))]
        self.assertEqual(found, [("h", 80, False, ""), ("h", 443, True, "/v1"), ("::1", 8, False, "/x"),
                                 ("h", 81, False, "/a/b")])

    def test_ids_and_queries(self):
        self.assertEqual(segment("a/../b?#"), "a%2F..%2Fb%3F%23")
        for wrong in ("", ".", "..", None):
            self.assertRaises(InvalidArgument, segment, wrong)
        self.assertEqual(query(("a", None), ("b", ["x y", "&"]), ("c", True)), "b=x%20y&b=%26&c=true")

    def test_every_form_of_an_error_has_a_message(self):
        def message(status, body):
            return refusal("POST /x", Head(status, {}, "HTTP/1.1"), body).message
        self.assertEqual(message(400, b'{"code":"A","message":"no room"}'), "no room")
        self.assertEqual(message(422, b'{"detail":[{"loc":["body",1],"msg":"no"}]}'), "body.1: no")
        self.assertEqual(message(502, b"<html>busy</html>"), "the server answered Bad Gateway")
        self.assertEqual(message(503, b"busy\nx"), "busy")


class Events(unittest.TestCase):
    def test_any_pieces(self):
        stream = b'{"n":0}\n\n{"n":1}\r\n\r\ndata: {"n":\ndata: 2}\n\n: note\nevent: x\nid: 4\ndata:{"n":3}\n\n'
        for size in range(1, len(stream) + 1):
            frames = Frames("x")
            got = [v for at in range(0, len(stream), size) for v in frames.feed(stream[at : at + size])]
            self.assertEqual(got + frames.finish(), [{"n": n} for n in range(4)], size)

    def test_what_is_none(self):
        self.assertRaises(errors.Unreadable, Frames("x").feed, b"hello\n")
        self.assertEqual(Frames("x").finish(), [])
        half = Frames("x")
        half.feed(b'{"n":')
        self.assertEqual(half.finish(), [])
        whole = Frames("x")
        whole.feed(b'{"n":1}')
        self.assertEqual(whole.finish(), [{"n": 1}])


class WebSocket(unittest.TestCase):
    def test_frames_read_back(self):
        for length in (0, 1, 125, 126, 65535, 65536, 70001):
            payload = os.urandom(length)
            frame = bytearray(encode(BINARY, payload))
            # What a server sends is not masked: take the mask off as a server would.
            at = 2 if length < 126 else 4 if length < 65536 else 10
            mask, masked = frame[at : at + 4], frame[at + 4 :]
            plain = bytes(byte ^ mask[n % 4] for n, byte in enumerate(masked))
            self.assertEqual(plain, payload)
            frame[1] &= 0x7F
            served = bytes(frame[:at]) + payload
            decoder, got = Decoder(), []
            for start in range(0, len(served), 997):
                got += decoder.feed(served[start : start + 997])
            self.assertEqual(got, [(BINARY, payload)])

    def test_messages_in_parts(self):
        decoder = Decoder()
        got = decoder.feed(b"\x02\x02ab" + b"\x88\x00" + b"\x80\x01c")
        self.assertEqual(got, [(CLOSE, b""), (BINARY, b"abc")])
        self.assertRaises(errors.TerminalError, Decoder().feed, b"\x82\x80aaaa")

    def test_handshake(self):
        # The example of RFC 6455, 1.3.
        self.assertEqual(accept_of("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")


class Settings(unittest.TestCase):
    TEXT = '# all\n[connection]\napi_key = "k\\"#1" # note\ndomain = \'h:1\'\nrequest_timeout = 9.5\n' \
           'use_server_proxy = true\n\n[output]\nformats = ["a", "b"]\nwidth = 1_00\n'

    def test_the_small_reader_agrees(self):
        expected = {"connection": {"api_key": 'k"#1', "domain": "h:1", "request_timeout": 9.5, "use_server_proxy": True},
                    "output": {"formats": ["a", "b"], "width": 100}}
        self.assertEqual(read_small(self.TEXT), expected)
        if sys.version_info >= (3, 11):
            import tomllib
            self.assertEqual(tomllib.loads(self.TEXT), expected)
        for wrong in ("[connection\n", "x\n", "x = \n", "x = yes\n"):
            self.assertRaises(ValueError, read_small, wrong)

    def test_the_key_is_not_shown(self):
        self.assertNotIn("very-secret", repr(Config(api_key="very-secret", headers={"a": "very-secret"})))


class WireTypes(unittest.TestCase):
    def test_there_and_back(self):
        given = {"id": "a", "createdAt": "2026-11-18T01:27:00.330839Z", "status": {"state": "Running"}, "added": 1,
                 "metadata": {"k": "v"}, "image": {"uri": "host"}}
        found = wire.SandboxInfo.from_wire(given)
        self.assertEqual((found.status.state, found.expires_at, found.created_at.year), ("Running", None, 2026))
        del given["added"]
        self.assertEqual(found.to_wire(), given)
        self.assertEqual(found, wire.SandboxInfo.from_wire(given))
        self.assertRaises(ValueError, wire.SandboxInfo.from_wire, {"id": "a"})
        self.assertRaises(TypeError, wire.Volume, name="x")
        self.assertRaises(TypeError, wire.ImageSpec, uri="x", nope=1)

    def test_times(self):
        expected = datetime(2026, 1, 2, 3, 4, 5, 123456, timezone.utc)
        for text in ("2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123456789Z", "2026-01-02T04:04:05.123456+01:00"):
            self.assertEqual(time_from_text(text), expected)
        self.assertEqual(text_from_time(expected), "2026-01-02T03:04:05.123456Z")
        self.assertEqual(time_from_text("2026-01-02T03:04:05Z").microsecond, 0)


class Outputs(unittest.TestCase):
    def test_endings(self):
        def ended(*events):
            output = Output()
            for event in events:
                output.push(event)
            return output.exit_code, output.ending.kind, output.is_success
        self.assertEqual(ended(Stdout("x"), Completed(1.0)), (0, "code", True))
        self.assertEqual(ended(ErrorEvent(ExecutionFailure("CommandExecError", "3", ["exit status 3"]))), (3, "code", False))
        self.assertEqual(ended(ErrorEvent(ExecutionFailure("CommandExecError", "-1", ["signal: killed"]))), (-1, "signal", False))
        self.assertEqual(ended(ErrorEvent(ExecutionFailure("NameError", "x", [])), Completed(1.0)), (None, "failed", False))
        self.assertEqual(ended(), (None, "failed", False))

    def test_kinds_of_results(self):
        figure = result_of({"image/png": "AAE=", "text/plain": "p"}, 1)
        assert isinstance(figure, Figure)
        self.assertEqual((figure.data, figure.media_type, figure.text), (b"\0\1", "image/png", "p"))
        self.assertIsInstance(result_of({"text/html": "<table>"}, None), Table)
        self.assertEqual(result_of({"text/plain": "x"}, None).kind, "text")
        self.assertEqual(result_of({"application/json": "{}"}, None).kind, "other")


class Archives(unittest.TestCase):
    def test_nothing_is_written_outside(self):
        def archive(name, kind=tarfile.REGTYPE, link=""):
            held = io.BytesIO()
            with tarfile.open(fileobj=held, mode="w") as out:
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = kind, link
                out.addfile(entry, io.BytesIO())
            return held
        with tempfile.TemporaryDirectory() as place:
            inside = os.path.join(place, "in")
            self.assertEqual(unpack(archive("a/b"), inside), 1)
            for bad in (archive("../x"), archive("/etc/x"), archive("l", tarfile.SYMTYPE, "../.."),
                        archive("l", tarfile.SYMTYPE, "/etc"), archive("d", tarfile.CHRTYPE)):
                self.assertRaises(errors.Unreadable, unpack, bad, inside)
            self.assertEqual(sorted(os.listdir(place)), ["in"])


class Package(unittest.TestCase):
    def test_the_readme_is_python(self):
        readme = Path(__file__).resolve().parents[2] / "README.md"
        blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), re.S)
        self.assertEqual(len(blocks), 4)
        for block in blocks:
            compile(block, "README.md", "exec")
        theirs, ours = ([line for line in block.splitlines() if line.strip()] for block in blocks[2:])
        self.assertLess(len(ours), len(theirs))

    def test_every_name_is_there(self):
        import osb
        for name in osb.__all__:
            self.assertIsNotNone(getattr(osb, name), name)
        self.assertRaises(AttributeError, getattr, osb, "nope")

    def test_the_blocking_client_does_not_load_asyncio(self):
        import subprocess
        code = "import sys, osb; print(json.dumps([m for m in ('asyncio', 'ssl', 'tarfile', 'http') if m in sys.modules]))"
        found = subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(json.loads(found.stdout), [])

    def test_both_clients_have_the_same_methods(self):
        import osb
        for name in osb.__all__:
            if name.startswith("Async"):
                ours, twin = (set(vars(getattr(osb, each))) for each in (name, name[5:]))
                plain = {each.replace("__a", "__") for each in ours if not each.startswith("_") or each.startswith("__a")}
                self.assertLessEqual(plain - {"__annotations__", "__nnotations__"}, twin, name)


if __name__ == "__main__":
    unittest.main()
