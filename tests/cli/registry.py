"""A registry on loopback with one image, whose layer comes as slowly as the test wants."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Pieces in which the layer is sent; all but the last wait for the test.
PIECES = 8
# A test that forgot to let go must not hang.
HOLD_SECONDS_MAX = 120


def blob(data):
    return "sha256:" + hashlib.sha256(data).hexdigest(), data


class Registry:
    """`reference` names the image; `more()` lets one more piece of its layer come, `go()` the rest."""

    def __init__(self):
        self.pieces = threading.Semaphore(0)
        self.asked = threading.Event()
        self.gone = threading.Event()
        self.blobs, self.manifest = self.image()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                registry.answer(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        # The name differs from test to test, so that no other test has brought it here.
        self.reference = "127.0.0.1:%d/slow/busybox:1" % self.server.server_port

    def image(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            def add(name, data=b"", kind=tarfile.REGTYPE, mode=0o755, link=""):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), link
                tar.addfile(entry, io.BytesIO(data))

            for directory in ("bin", "tmp", "proc", "dev", "sys", "etc"):
                add(directory, kind=tarfile.DIRTYPE)
            add("bin/busybox", open("/bin/busybox", "rb").read())
            for name in ("sh", "tail", "echo", "sleep", "cat"):
                add(f"bin/{name}", kind=tarfile.SYMTYPE, link="busybox")
            # Does not compress, so that there is something to wait for.
            add("etc/bulk", os.urandom(1 << 20), mode=0o644)
        layer = out.getvalue()
        packed = gzip.compress(layer, 1)
        config = json.dumps({
            "architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        }).encode()
        blobs = dict((blob(packed), blob(config)))
        self.layer = blob(packed)[0]
        part = lambda kind, data: {"mediaType": kind, "digest": blob(data)[0], "size": len(data)}
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": part("application/vnd.oci.image.config.v1+json", config),
            "layers": [part("application/vnd.oci.image.layer.v1.tar+gzip", packed)],
        }).encode()
        return blobs, manifest

    def answer(self, request):
        path = request.path.split("?")[0]
        if "/manifests/" in path:
            return self.send(request, self.manifest, "application/vnd.oci.image.manifest.v1+json")
        digest = path.rsplit("/", 1)[-1]
        if digest in self.blobs:
            return self.send(request, self.blobs[digest], "application/octet-stream", digest == self.layer)
        self.send(request, b"{}", "application/json")

    def send(self, request, data, kind, is_slow=False):
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.send_header("Docker-Content-Digest", blob(data)[0])
        request.end_headers()
        if request.command == "HEAD":
            return
        size = -(-len(data) // PIECES)
        try:
            for start in range(0, len(data), size):
                if is_slow:
                    self.asked.set()
                    assert self.pieces.acquire(timeout=HOLD_SECONDS_MAX), "the test never let go"
                request.wfile.write(data[start:start + size])
                request.wfile.flush()
        except OSError:
            self.gone.set()

    def more(self):
        self.pieces.release()

    def go(self):
        for _ in range(PIECES):
            self.pieces.release()

    def close(self):
        self.go()
        self.server.shutdown()
        self.server.server_close()
