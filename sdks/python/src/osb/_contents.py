"""What is written to files: the pieces of an upload as they go over the wire (RFC 7578)."""

from __future__ import annotations

import json
import os
from typing import Any

from .errors import InvalidArgument

# Forms up to this size are put together in memory and can be sent again; larger ones are sent as
# they are read.
WHOLE_BYTES_MAX = 1024 * 1024
# Files are read in pieces of this size: what a socket takes at once.
PIECE_BYTES = 256 * 1024


class WriteFile:
    """A file to write: `data` is text, bytes, an open binary file or an iterable of bytes.

    `mode` is as `chmod` takes it (`0o644`), `owner` and `group` are names or numbers.
    """

    def __init__(
        self, path: str, data: Any, *, mode: int | None = None, owner: str | None = None, group: str | None = None
    ) -> None:
        self.path = path
        self.data = data.encode() if isinstance(data, str) else data
        self.mode = mode
        self.owner = owner
        self.group = group

    def head(self, boundary: str) -> bytes:
        """What stands before the file's bytes."""
        about = {"path": self.path, **permission(self.mode, self.owner, self.group)}
        # The published daemon wants every part to have a file name; which does not matter.
        return (
            f"--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"metadata\"\r\n"
            f"Content-Type: application/json\r\n\r\n{json.dumps(about)}\r\n"
            f"--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n"
            f"Content-Type: application/octet-stream\r\n\r\n"
        ).encode()


def permission(mode: int | None, owner: str | None, group: str | None) -> dict[str, Any]:
    """Mode and owner as the protocol writes them: the mode's octal digits read as a decimal number."""
    found: dict[str, Any] = {}
    if mode is not None:
        if not 0 <= mode <= 0o7777:
            raise InvalidArgument(f"{mode:#o} is not a file mode", "write it as 0o644")
        found["mode"] = int(f"{mode:o}")
    if owner is not None:
        found["owner"] = owner
    if group is not None:
        found["group"] = group
    return found


def new_boundary() -> str:
    return f"osb-{os.urandom(16).hex()}"


def length_of(data: Any) -> int | None:
    """How many bytes, if that is known without reading them."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return len(data)
    if hasattr(data, "fileno"):
        try:
            found = os.fstat(data.fileno())
            # What is not a regular file has a length only when it was read.
            if found.st_mode & 0o170000 == 0o100000:
                return max(0, found.st_size - int(data.tell()))
        except (OSError, ValueError):
            pass
    return None
