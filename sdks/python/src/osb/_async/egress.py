"""What a sandbox may reach, and the credentials that are put into its requests on the way out. Both are
asked of the sandbox's egress API; a server without it refuses with a typed error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from .. import _http, wire

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

VAULT = "/credential-vault"


class AsyncEgress:
    """What a sandbox may reach, by `sandbox.egress`."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def _status(self, method: str, body: Any = None) -> wire.PolicyStatusResponse:
        target = await self._sandbox._egress()
        return wire.PolicyStatusResponse.from_wire(await target.json(method, "/policy", json=body))

    async def policy(self) -> wire.PolicyStatusResponse:
        """The policy."""
        return await self._status("GET")

    async def replace(self, policy: wire.NetworkPolicy) -> wire.PolicyStatusResponse:
        """Replaces the policy."""
        return await self._status("PUT", policy)

    async def patch(self, rules: Sequence[wire.NetworkRule]) -> wire.PolicyStatusResponse:
        """Puts rules before the others."""
        return await self._status("PATCH", list(rules))

    async def delete(self, targets: Sequence[str]) -> wire.PolicyStatusResponse:
        """Removes the rules of these targets."""
        return await self._status("DELETE", list(targets))


class AsyncCredentialVault:
    """Credentials of a sandbox, by `sandbox.credential_vault`. No answer has a secret in it."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def _json(self, method: str, path: str, body: Any = None) -> Any:
        return await (await self._sandbox._egress()).json(method, path, json=body)

    async def create(self, request: wire.CredentialVaultCreateRequest) -> wire.CredentialVaultState:
        """Makes the vault."""
        return wire.CredentialVaultState.from_wire(await self._json("POST", VAULT, request))

    async def get(self) -> wire.CredentialVaultState:
        return wire.CredentialVaultState.from_wire(await self._json("GET", VAULT))

    async def patch(self, request: wire.CredentialVaultMutationRequest) -> wire.CredentialVaultState:
        """Changes the vault, all or nothing."""
        return wire.CredentialVaultState.from_wire(await self._json("PATCH", VAULT, request))

    async def delete(self) -> None:
        """Removes the vault."""
        await self._json("DELETE", VAULT)

    async def credentials(self) -> wire.CredentialListResponse:
        return wire.CredentialListResponse.from_wire(await self._json("GET", f"{VAULT}/credentials"))

    async def credential(self, name: str) -> wire.CredentialMetadata:
        path = f"{VAULT}/credentials/{_http.segment(name)}"
        return wire.CredentialMetadata.from_wire(await self._json("GET", path))

    async def bindings(self) -> wire.CredentialBindingListResponse:
        return wire.CredentialBindingListResponse.from_wire(await self._json("GET", f"{VAULT}/bindings"))

    async def binding(self, name: str) -> wire.CredentialBindingMetadata:
        path = f"{VAULT}/bindings/{_http.segment(name)}"
        return wire.CredentialBindingMetadata.from_wire(await self._json("GET", path))
