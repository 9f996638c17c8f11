"""Puts a layer and its configuration into one archive, in the form of `docker save`.

    pack.py DIRECTORY ARCHITECTURE NAME SETTING... ARCHIVE

The layer is DIRECTORY/layer.tar; each SETTING is a variable of the image's environment.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

directory, architecture, name, *settings, archive = sys.argv[1:]
layer = Path(directory) / "layer.tar"
hashed = hashlib.sha256()
with layer.open("rb") as file:
    while piece := file.read(1 << 20):
        hashed.update(piece)
digest = hashed.hexdigest()
config = json.dumps({
    "architecture": architecture,
    "os": "linux",
    "created": "2023-11-14T22:13:20Z",
    "config": {
        "Env": [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG=C.UTF-8",
            "MPLBACKEND=agg",
            # Debian's pip refuses to install where the image's packages are; here it may.
            "PIP_BREAK_SYSTEM_PACKAGES=1",
            *settings,
        ],
        "Entrypoint": ["/opt/code-interpreter/code-interpreter.sh"],
        "WorkingDir": "/workspace",
    },
    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    "history": [{"created": "2023-11-14T22:13:20Z", "created_by": "images/code-interpreter/build"}],
}).encode()
identity = hashlib.sha256(config).hexdigest()
manifest = json.dumps([
    {"Config": f"{identity}.json", "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]},
]).encode()
with tarfile.open(archive, "w") as out:
    # The manifest first: whoever looks what this is need not read past the layer.
    for path, text in (("manifest.json", manifest), (f"{identity}.json", config)):
        entry = tarfile.TarInfo(path)
        entry.size = len(text)
        out.addfile(entry, io.BytesIO(text))
    out.add(layer, f"{digest}/layer.tar")
layer.unlink()
