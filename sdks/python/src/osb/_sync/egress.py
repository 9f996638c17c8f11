# Made from osb/_async/egress.py by make-sync. Do not edit.
"""What a sandbox may reach, and the credentials that are put into its requests on the way out. Both are
asked of the sandbox's egress API; a server without it refuses with a typed error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from .. import _http, wire

if TYPE_CHECKING:
    from .sandbox import Sandbox

VAULT = "/credential-vault"


class Egress:
    """What a sandbox may reach, by `sandbox.egress`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def _status(self, method: str, body: Any = None) -> wire.PolicyStatusResponse:
        target = self._sandbox._egress()
        return wire.PolicyStatusResponse.from_wire(target.json(method, "/policy", json=body))

    def policy(self) -> wire.PolicyStatusResponse:
        """The policy."""
        return self._status("GET")

    def replace(self, policy: wire.NetworkPolicy) -> wire.PolicyStatusResponse:
        """Replaces the policy."""
        return self._status("PUT", policy)

    def patch(self, rules: Sequence[wire.NetworkRule]) -> wire.PolicyStatusResponse:
        """Puts rules before the others."""
        return self._status("PATCH", list(rules))

    def delete(self, targets: Sequence[str]) -> wire.PolicyStatusResponse:
        """Removes the rules of these targets."""
        return self._status("DELETE", list(targets))


class CredentialVault:
    """Credentials of a sandbox, by `sandbox.credential_vault`. No answer has a secret in it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        return (self._sandbox._egress()).json(method, path, json=body)

    def create(self, request: wire.CredentialVaultCreateRequest) -> wire.CredentialVaultState:
        """Makes the vault."""
        return wire.CredentialVaultState.from_wire(self._json("POST", VAULT, request))

    def get(self) -> wire.CredentialVaultState:
        return wire.CredentialVaultState.from_wire(self._json("GET", VAULT))

    def patch(self, request: wire.CredentialVaultMutationRequest) -> wire.CredentialVaultState:
        """Changes the vault, all or nothing."""
        return wire.CredentialVaultState.from_wire(self._json("PATCH", VAULT, request))

    def delete(self) -> None:
        """Removes the vault."""
        self._json("DELETE", VAULT)

    def credentials(self) -> wire.CredentialListResponse:
        return wire.CredentialListResponse.from_wire(self._json("GET", f"{VAULT}/credentials"))

    def credential(self, name: str) -> wire.CredentialMetadata:
        path = f"{VAULT}/credentials/{_http.segment(name)}"
        return wire.CredentialMetadata.from_wire(self._json("GET", path))

    def bindings(self) -> wire.CredentialBindingListResponse:
        return wire.CredentialBindingListResponse.from_wire(self._json("GET", f"{VAULT}/bindings"))

    def binding(self, name: str) -> wire.CredentialBindingMetadata:
        path = f"{VAULT}/bindings/{_http.segment(name)}"
        return wire.CredentialBindingMetadata.from_wire(self._json("GET", path))
