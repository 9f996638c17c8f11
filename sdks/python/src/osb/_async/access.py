"""Who may use a server: API keys, tokens made from them, and tenants. For administrators, but for tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _http, wire

if TYPE_CHECKING:
    from .client import AsyncClient


class AsyncKeys:
    """The API keys of a server, by `client.keys`."""

    def __init__(self, client: AsyncClient) -> None:
        self._target = client._target

    async def list(self) -> wire.ListKeysResponse:
        """All that the caller looks after, and tokens that are good."""
        return wire.ListKeysResponse.from_wire(await self._target.json("GET", "/keys"))

    async def create(self, request: wire.CreateKeyRequest) -> wire.NewApiKey:
        """Makes a key, whose value is shown this once."""
        return wire.NewApiKey.from_wire(await self._target.json("POST", "/keys", json=request))

    async def rotate(self, id: str, grace_seconds: int | None = None) -> wire.NewApiKey:
        """Gives a key a new value. What is open with the old one ends, and it is good for so many seconds more."""
        request = wire.RotateKeyRequest(grace_seconds=grace_seconds)
        answer = await self._target.json("POST", f"/keys/{_http.segment(id)}/rotate", json=request)
        return wire.NewApiKey.from_wire(answer)

    async def revoke(self, id: str) -> None:
        """Revokes a key with its tokens; what is open with them ends."""
        await self._target.whole("DELETE", f"/keys/{_http.segment(id)}")

    async def create_token(self, request: wire.CreateTokenRequest | None = None) -> wire.NewApiKey:
        """Makes a token from this client's own key: a key for a short time that may do no more."""
        answer = await self._target.json("POST", "/tokens", json=request or wire.CreateTokenRequest())
        return wire.NewApiKey.from_wire(answer)


class AsyncTenants:
    """The tenants of a server, by `client.tenants`."""

    def __init__(self, client: AsyncClient) -> None:
        self._target = client._target

    async def list(self) -> wire.ListTenantsResponse:
        """All but the built-in one."""
        return wire.ListTenantsResponse.from_wire(await self._target.json("GET", "/tenants"))

    async def get(self, name: str) -> wire.Tenant:
        """One of them."""
        return wire.Tenant.from_wire(await self._target.json("GET", f"/tenants/{_http.segment(name)}"))

    async def create(self, name: str) -> wire.Tenant:
        """Makes a tenant."""
        return wire.Tenant.from_wire(await self._target.json("POST", "/tenants", json={"name": name}))

    async def remove(self, name: str) -> None:
        """Removes a tenant that has nothing any more, with its keys."""
        await self._target.whole("DELETE", f"/tenants/{_http.segment(name)}")
