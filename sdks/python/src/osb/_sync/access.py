# Made from osb/_async/access.py by make-sync. Do not edit.
"""Who may use a server: API keys, tokens made from them, and tenants. For administrators, but for tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _http, wire

if TYPE_CHECKING:
    from .client import Client


class Keys:
    """The API keys of a server, by `client.keys`."""

    def __init__(self, client: Client) -> None:
        self._target = client._target

    def list(self) -> wire.ListKeysResponse:
        """All that the caller looks after, and tokens that are good."""
        return wire.ListKeysResponse.from_wire(self._target.json("GET", "/keys"))

    def create(self, request: wire.CreateKeyRequest) -> wire.NewApiKey:
        """Makes a key, whose value is shown this once."""
        return wire.NewApiKey.from_wire(self._target.json("POST", "/keys", json=request))

    def rotate(self, id: str, grace_seconds: int | None = None) -> wire.NewApiKey:
        """Gives a key a new value. What is open with the old one ends, and it is good for so many seconds more."""
        request = wire.RotateKeyRequest(grace_seconds=grace_seconds)
        answer = self._target.json("POST", f"/keys/{_http.segment(id)}/rotate", json=request)
        return wire.NewApiKey.from_wire(answer)

    def revoke(self, id: str) -> None:
        """Revokes a key with its tokens; what is open with them ends."""
        self._target.whole("DELETE", f"/keys/{_http.segment(id)}")

    def create_token(self, request: wire.CreateTokenRequest | None = None) -> wire.NewApiKey:
        """Makes a token from this client's own key: a key for a short time that may do no more."""
        answer = self._target.json("POST", "/tokens", json=request or wire.CreateTokenRequest())
        return wire.NewApiKey.from_wire(answer)


class Tenants:
    """The tenants of a server, by `client.tenants`."""

    def __init__(self, client: Client) -> None:
        self._target = client._target

    def list(self) -> wire.ListTenantsResponse:
        """All but the built-in one."""
        return wire.ListTenantsResponse.from_wire(self._target.json("GET", "/tenants"))

    def get(self, name: str) -> wire.Tenant:
        """One of them."""
        return wire.Tenant.from_wire(self._target.json("GET", f"/tenants/{_http.segment(name)}"))

    def create(self, name: str) -> wire.Tenant:
        """Makes a tenant."""
        return wire.Tenant.from_wire(self._target.json("POST", "/tenants", json={"name": name}))

    def remove(self, name: str) -> None:
        """Removes a tenant that has nothing any more, with its keys."""
        self._target.whole("DELETE", f"/tenants/{_http.segment(name)}")
