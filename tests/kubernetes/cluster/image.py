"""Writes OCI archives, as the image specification 1.1 has them, for `ctr images import`.

One layer each. Pulls nothing and compresses nothing.
"""

import hashlib
import io
import json
import tarfile

MEDIA = "application/vnd.oci.image."
PIECE = 1 << 20


def layer(path, files):
    """Writes a layer of files that are given as {path inside: path outside}."""
    with tarfile.open(path, "w") as tar:
        for name, mode in (("tmp", 0o1777), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for inside, outside in files.items():
            with open(outside, "rb") as file:
                entry = tarfile.TarInfo(inside.lstrip("/"))
                entry.mode = 0o755
                entry.size = file.seek(0, io.SEEK_END)
                file.seek(0)
                tar.addfile(entry, file)


def digest_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return "sha256:" + digest.hexdigest()


def archive(path, name, layer_path, entrypoint, architecture, user=""):
    """Writes an archive of the image `name`, which has the one layer."""
    blobs = {}

    def keep(value):
        text = json.dumps(value).encode()
        digest = "sha256:" + hashlib.sha256(text).hexdigest()
        blobs[digest] = text
        return {"digest": digest, "size": len(text)}

    diff = digest_of(layer_path)
    with open(layer_path, "rb") as file:
        size = file.seek(0, io.SEEK_END)
    config = keep({
        "architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [diff]},
        "config": {"Entrypoint": entrypoint, "User": user,
                   "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]},
    })
    manifest = keep({
        "schemaVersion": 2, "mediaType": MEDIA + "manifest.v1+json",
        "config": {"mediaType": MEDIA + "config.v1+json", **config},
        "layers": [{"mediaType": MEDIA + "layer.v1.tar", "digest": diff, "size": size}],
    })
    index = {"schemaVersion": 2, "manifests": [{
        "mediaType": MEDIA + "manifest.v1+json", **manifest,
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"io.containerd.image.name": name},
    }]}
    with tarfile.open(path, "w") as tar:
        def add(inside, content):
            entry = tarfile.TarInfo(inside)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))

        add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add("index.json", json.dumps(index).encode())
        for digest, content in blobs.items():
            add("blobs/sha256/" + digest.partition(":")[2], content)
        entry = tarfile.TarInfo("blobs/sha256/" + diff.partition(":")[2])
        entry.size = size
        with open(layer_path, "rb") as file:
            tar.addfile(entry, file)
