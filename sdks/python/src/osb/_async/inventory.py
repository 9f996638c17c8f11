"""What a server keeps for sandboxes to come: images and named volumes. For holders of an API key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _contents, _http, wire
from .execution import AsyncStream
from .files import AsyncByteStream, pieces_of

if TYPE_CHECKING:
    from .client import AsyncClient


class AsyncImages:
    """The images of a server, by `client.images`."""

    def __init__(self, client: AsyncClient) -> None:
        self._target = client._target

    async def list(self) -> wire.ListImagesResponse:
        """All of them, and what they take."""
        return wire.ListImagesResponse.from_wire(await self._target.json("GET", "/images"))

    async def pull(
        self, image: str, platform: wire.PlatformSpec | None = None, *, auth: wire.ImageAuth | None = None
    ) -> AsyncStream:
        """Brings an image to the server; answers its progress as `PullEvent`s. The last is `done` or
        `error`; a stream that ends without either was cut off. `auth` is for a private registry."""
        order: dict[str, Any] = {"image": wire.ImageSpec(uri=image, auth=auth)}
        if platform is not None:
            order["platform"] = platform
        # A registry may think about its first answer for long.
        answer = await self._target.send("POST", "/images/pull", json=order, timeout=None)
        return AsyncStream(answer, "the progress of a download", wire.PullEvent.from_wire)

    async def import_(self, archive: Any, name: str | None = None) -> wire.ImportImagesResponse:
        """Brings images to the server from an archive: an OCI layout, `docker save`, or a root filesystem,
        which needs a name. `archive` is bytes, an open binary file or an iterable of bytes."""
        answer = await self._target.json(
            "POST", "/images/import", query=_http.query(("name", name)), body=pieces_of(archive),
            length=_contents.length_of(archive), content_type="application/x-tar", timeout=None)
        return wire.ImportImagesResponse.from_wire(answer)

    async def export(self, reference: str) -> AsyncByteStream:
        """An image as an OCI archive."""
        query = _http.query(("reference", reference))
        return AsyncByteStream(await self._target.send("GET", "/images/export", query=query, timeout=None))

    async def tag(self, reference: str, name: str) -> wire.ImageInfo:
        """Gives an image that is there, by name or id, another name, which means exactly this image from now
        on; answers it with all its names."""
        query = _http.query(("reference", reference), ("name", name))
        return wire.ImageInfo.from_wire(await self._target.json("POST", "/images/tag", query=query))

    async def remove(self, reference: str) -> None:
        """Takes a name from an image; what nobody uses goes with `prune`."""
        await self._target.whole("DELETE", f"/images/{_http.segment(reference)}")

    async def prune(self) -> wire.PruneImagesResponse:
        """Removes images without a name that nobody uses, and layers without an image."""
        return wire.PruneImagesResponse.from_wire(await self._target.json("POST", "/images/prune", timeout=None))


class AsyncVolumes:
    """The named volumes of a server, by `client.volumes`."""

    def __init__(self, client: AsyncClient) -> None:
        self._target = client._target

    async def list(self) -> wire.ListVolumesResponse:
        """All of them, and who has them mounted."""
        return wire.ListVolumesResponse.from_wire(await self._target.json("GET", "/volumes"))

    async def create(self, name: str) -> wire.VolumeSummary:
        """Makes a volume. A sandbox that names one that is not there makes it as well."""
        return wire.VolumeSummary.from_wire(await self._target.json("POST", "/volumes", json={"name": name}))

    async def remove(self, name: str, force: bool = False) -> None:
        """Removes a volume with all it holds; one that a sandbox has mounted only when forced."""
        query = _http.query(("force", True if force else None))
        await self._target.whole("DELETE", f"/volumes/{_http.segment(name)}", query=query)
