# Made from osb/_async/files.py by make-sync. Do not edit.
"""Files and directories of a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Sequence

from .. import _contents, _http, wire
from .._contents import PIECE_BYTES, WHOLE_BYTES_MAX, WriteFile
from ..errors import InvalidArgument, OsbError, Unreadable
from . import net
from .transport import Response

if TYPE_CHECKING:
    from .sandbox import Sandbox


class ByteStream:
    """Bytes as they arrive: iterate over it. `length` is how many there are in all, if that is known."""

    def __init__(self, answer: Response) -> None:
        self._answer = answer
        length = answer.headers.get("content-length", "")
        self.length = int(length) if length.isdigit() else None

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._answer.close()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            piece = self._answer.piece()
            if piece is None:
                return
            yield piece

    def read(self) -> bytes:
        """Reads to the end."""
        return b"".join([piece for piece in self])

    def save(self, path: str) -> int:
        """Writes all of it into a file of this machine; answers how many bytes."""
        size = 0
        with open(path, "wb") as file:
            for piece in self:
                size += file.write(piece)
        return size

    def close(self) -> None:
        self._answer.close()


def pieces_of(data: Any) -> Iterator[bytes]:
    """The bytes of whatever a caller gave."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        yield bytes(data)
    elif hasattr(data, "read"):
        while True:
            piece = net.read_file(data, PIECE_BYTES)
            if not piece:
                return
            yield piece
    elif hasattr(data, "__iter__"):
        for piece in data:
            yield piece
    elif hasattr(data, "__iter__"):
        for piece in data:
            yield piece
    else:
        raise InvalidArgument(f"{type(data).__name__} is no content", "give text, bytes, a binary file or an iterable")


def _form(files: Sequence[WriteFile], boundary: str) -> Iterator[bytes]:
    for file in files:
        yield file.head(boundary)
        for piece in pieces_of(file.data):
            yield piece
        yield b"\r\n"
    yield f"--{boundary}--\r\n".encode()


class Files:
    """The files of a sandbox, by `sandbox.files`."""

    def __init__(self, sandbox: Sandbox, prefix: str = "") -> None:
        self._sandbox = sandbox
        self._prefix = prefix

    def as_user(self, uid: int, gid: int) -> Files:
        """The files as this user and group see them."""
        return Files(self._sandbox, f"/v1/filesystem/{int(uid)}/{int(gid)}")

    def _json(self, method: str, path: str, **given: Any) -> Any:
        target = self._sandbox._exec()
        return target.json(method, self._prefix + path, **given)

    def _done(self, method: str, path: str, **given: Any) -> None:
        target = self._sandbox._exec()
        target.whole(method, self._prefix + path, **given)

    def _stream(self, path: str, query: str, headers: Mapping[str, str] | None = None) -> ByteStream:
        target = self._sandbox._exec()
        return ByteStream(target.send("GET", self._prefix + path, query=query, headers=headers))

    def read(self, path: str) -> bytes:
        """Reads a file."""
        return (self.download(path)).read()

    def read_text(self, path: str) -> str:
        """Reads a file that is UTF-8 text."""
        try:
            return (self.read(path)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unreadable(path, f"it is not UTF-8 text: {error}; read it as bytes") from error

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Reads the bytes from `start` up to `end`; fewer where the file ends before."""
        if not 0 <= start <= end:
            raise InvalidArgument(f"{start}..{end} is no range", "start is not after end")
        if start == end:
            return b""
        headers = {"Range": f"bytes={start}-{end - 1}"}
        return (self._stream("/files/download", _http.query(("path", path)), headers)).read()

    def read_lines(self, path: str, first: int, count: int) -> str:
        """Reads `count` lines from line `first` on, which counts from 1."""
        query = _http.query(("path", path), ("offset", first), ("limit", count))
        return ((self._stream("/files/download", query)).read()).decode("utf-8", "replace")

    def download(self, path: str) -> ByteStream:
        """Reads a file as it arrives; it is never whole in memory."""
        return self._stream("/files/download", _http.query(("path", path)))

    def write(
        self, path: str, data: Any, *, mode: int | None = None, owner: str | None = None, group: str | None = None
    ) -> None:
        """Writes a file, whole or not at all; directories on the way are made. `data` is text, bytes, an
        open binary file or an iterable of bytes; `mode` is as `chmod` takes it (`0o644`)."""
        self.write_all([WriteFile(path, data, mode=mode, owner=owner, group=group)])

    def write_all(self, files: Sequence[WriteFile]) -> None:
        """Writes files in one request."""
        if not files:
            return
        boundary = _contents.new_boundary()
        lengths = [_contents.length_of(file.data) for file in files]
        length: int | None = None
        if None not in lengths:
            known = sum(each for each in lengths if each is not None)
            length = known + sum(len(file.head(boundary)) + 2 for file in files) + len(boundary) + 6
        body: Any = _form(files, boundary)
        is_whole = all(isinstance(file.data, bytes) for file in files)
        # What is in memory already can be sent again; the rest takes as long as its source takes.
        timeout: dict[str, Any] = {"timeout": None}
        if is_whole and length is not None and length <= WHOLE_BYTES_MAX:
            body, timeout = b"".join([piece for piece in body]), {}
        self._done("POST", "/files/upload", body=body, length=length,
                         content_type=f"multipart/form-data; boundary={boundary}", **timeout)

    def info(self, *paths: str) -> dict[str, wire.FileInfo]:
        """What is known of files, by the paths as given."""
        found = self._json("GET", "/files/info", query=_http.query(("path", list(paths))))
        return {path: wire.FileInfo.from_wire(each) for path, each in found.items()}

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        try:
            return bool(self.info(path))
        except OsbError as error:
            if error.is_not_found:
                return False
            raise

    def list(self, path: str, depth: int = 1) -> List[wire.FileInfo]:
        """Lists a directory, this many levels deep."""
        found = self._json("GET", "/directories/list", query=_http.query(("path", path), ("depth", depth)))
        return [wire.FileInfo.from_wire(each) for each in found]

    def search(self, path: str, pattern: str) -> List[wire.FileInfo]:
        """Finds files below a directory by a glob."""
        query = _http.query(("path", path), ("pattern", pattern))
        return [wire.FileInfo.from_wire(each) for each in self._json("GET", "/files/search", query=query)]

    def rename(self, old: str, new: str) -> None:
        """Moves a file or directory."""
        self.rename_all({old: new})

    def rename_all(self, moves: Mapping[str, str]) -> None:
        """Moves files and directories."""
        self._done("POST", "/files/mv", json=[{"src": old, "dest": new} for old, new in moves.items()])

    def delete(self, *paths: str) -> None:
        """Removes files; one that is not there is no error."""
        self._done("DELETE", "/files", query=_http.query(("path", list(paths))))

    def create_directories(
        self, *paths: str, mode: int | None = None, owner: str | None = None, group: str | None = None
    ) -> None:
        """Makes directories with their parents."""
        given = _contents.permission(mode, owner, group)
        self._done("POST", "/directories", json={path: given for path in paths})

    def delete_directories(self, *paths: str) -> None:
        """Removes directories with everything in them."""
        self._done("DELETE", "/directories", query=_http.query(("path", list(paths))))

    def set_permissions(
        self, *paths: str, mode: int | None = None, owner: str | None = None, group: str | None = None
    ) -> None:
        """Sets mode (`0o644`), owner and group of files."""
        given = _contents.permission(mode, owner, group)
        self._done("POST", "/files/permissions", json={path: given for path in paths})

    def replace(self, path: str, old: str, new: str) -> int | None:
        """Replaces every occurrence of `old` in a file and answers how many there were; nothing where the
        daemon does not say."""
        found = self._json("POST", "/files/replace", query="verbose=true",
                                 json={path: {"old": old, "new": new}})
        counted = (found or {}).get(path)
        return wire.ReplaceFileContentResult.from_wire(counted).replaced_count if counted else None

    def download_archive(self, directory: str) -> ByteStream:
        """A directory with everything below it, as a tar stream."""
        return self._stream("/directories/archive", _http.query(("path", directory)))

    def upload_archive(self, directory: str, archive: Any) -> wire.ArchiveResponse:
        """Unpacks a tar stream into a directory, which is made when it is not there. `archive` is bytes, an
        open binary file or an iterable of bytes."""
        answer = self._json(
            "PUT", "/directories/archive", query=_http.query(("path", directory)), body=pieces_of(archive),
            length=_contents.length_of(archive), content_type="application/x-tar", timeout=None)
        return wire.ArchiveResponse.from_wire(answer)

    def download_directory(self, directory: str, local: str) -> int:
        """Copies a directory with everything below it to this machine; answers how many entries. Nothing
        is written outside of `local`, whatever the archive says."""
        from .. import _archive

        packed = _archive.spool()
        with self.download_archive(directory) as stream:
            for piece in stream:
                packed.write(piece)
        return _archive.unpack(packed, local)

    def upload_directory(self, local: str, directory: str) -> wire.ArchiveResponse:
        """Copies a directory of this machine with everything below it into the sandbox."""
        from .. import _archive

        with _archive.pack(local) as packed:
            return self.upload_archive(directory, packed)
