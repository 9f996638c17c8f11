"""Directories of this machine as tar archives."""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import IO, Any

from .errors import Unreadable

# Archives up to this size stay in memory.
MEMORY_BYTES_MAX = 8 * 1024 * 1024


def spool() -> Any:
    """A place for an archive: in memory, and in a temporary file when it gets large."""
    return tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES_MAX)


def pack(directory: str) -> IO[bytes]:
    """Everything below a directory."""
    file = tempfile.TemporaryFile()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in sorted(os.listdir(directory)):
            archive.add(os.path.join(directory, name), arcname=name)
    file.seek(0)
    return file


def unpack(file: Any, directory: str) -> int:
    """Writes an archive's entries below a directory; one that leads out of it is refused."""
    file.seek(0)
    os.makedirs(directory, exist_ok=True)
    root = os.path.realpath(directory)
    count = 0
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for entry in archive:
            place = os.path.realpath(os.path.join(root, entry.name))
            link = entry.linkname if entry.issym() or entry.islnk() else None
            base = os.path.dirname(place) if entry.issym() else root
            leads = place if link is None else os.path.realpath(os.path.join(base, link))
            is_inside = all(os.path.commonpath([root, each]) == root for each in (place, leads))
            if not is_inside or entry.isdev():
                raise Unreadable(entry.name, "it leads out of the directory")
            if hasattr(tarfile, "data_filter"):
                archive.extract(entry, root, filter="data")
            else:
                archive.extract(entry, root)
            count += 1
    return count
