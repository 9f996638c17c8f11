package osb

import (
	"context"
	"net/http"

	"github.com/osb-dev/osb/sdks/go/wire"
)

const vaultPath = "/credential-vault"

// askEgress sends a request to the sandbox's egress API.
func askEgress[T any](ctx context.Context, sandbox *Sandbox, method, path string, body any) (T, error) {
	at, err := sandbox.egressAPI(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return sendJSON[T](ctx, at, method, path, call{json: body})
}

// Egress is what a sandbox may reach, asked of the sandbox's egress API.
type Egress struct{ sandbox *Sandbox }

// Policy is the policy.
func (e *Egress) Policy(ctx context.Context) (wire.PolicyStatusResponse, error) {
	return askEgress[wire.PolicyStatusResponse](ctx, e.sandbox, http.MethodGet, "/policy", nil)
}

// Set replaces the policy.
func (e *Egress) Set(ctx context.Context, policy wire.NetworkPolicy) (wire.PolicyStatusResponse, error) {
	return askEgress[wire.PolicyStatusResponse](ctx, e.sandbox, http.MethodPut, "/policy", policy)
}

// Patch puts rules before the others.
func (e *Egress) Patch(ctx context.Context, rules []wire.NetworkRule) (wire.PolicyStatusResponse, error) {
	return askEgress[wire.PolicyStatusResponse](ctx, e.sandbox, http.MethodPatch, "/policy", rules)
}

// Delete removes the rules of these targets.
func (e *Egress) Delete(ctx context.Context, targets []string) (wire.PolicyStatusResponse, error) {
	return askEgress[wire.PolicyStatusResponse](ctx, e.sandbox, http.MethodDelete, "/policy", targets)
}

// CredentialVault has credentials that are put into a sandbox's requests on the way out.
type CredentialVault struct{ sandbox *Sandbox }

// Create makes the vault.
func (v *CredentialVault) Create(ctx context.Context, request wire.CredentialVaultCreateRequest) (wire.CredentialVaultState, error) {
	return askEgress[wire.CredentialVaultState](ctx, v.sandbox, http.MethodPost, vaultPath, request)
}

// Get is the vault, without any secret.
func (v *CredentialVault) Get(ctx context.Context) (wire.CredentialVaultState, error) {
	return askEgress[wire.CredentialVaultState](ctx, v.sandbox, http.MethodGet, vaultPath, nil)
}

// Patch changes the vault, all or nothing.
func (v *CredentialVault) Patch(ctx context.Context, request wire.CredentialVaultMutationRequest) (wire.CredentialVaultState, error) {
	return askEgress[wire.CredentialVaultState](ctx, v.sandbox, http.MethodPatch, vaultPath, request)
}

// Delete removes the vault.
func (v *CredentialVault) Delete(ctx context.Context) error {
	at, err := v.sandbox.egressAPI(ctx)
	if err != nil {
		return err
	}
	return at.done(ctx, http.MethodDelete, vaultPath, call{})
}

// Credentials are its credentials, without any secret.
func (v *CredentialVault) Credentials(ctx context.Context) (wire.CredentialListResponse, error) {
	return askEgress[wire.CredentialListResponse](ctx, v.sandbox, http.MethodGet, vaultPath+"/credentials", nil)
}

// Credential is one credential, without any secret.
func (v *CredentialVault) Credential(ctx context.Context, name string) (wire.CredentialMetadata, error) {
	path, err := pathOf(vaultPath+"/credentials/%s", name)
	if err != nil {
		return wire.CredentialMetadata{}, err
	}
	return askEgress[wire.CredentialMetadata](ctx, v.sandbox, http.MethodGet, path, nil)
}

// Bindings are where its credentials go.
func (v *CredentialVault) Bindings(ctx context.Context) (wire.CredentialBindingListResponse, error) {
	return askEgress[wire.CredentialBindingListResponse](ctx, v.sandbox, http.MethodGet, vaultPath+"/bindings", nil)
}

// Binding is one binding.
func (v *CredentialVault) Binding(ctx context.Context, name string) (wire.CredentialBindingMetadata, error) {
	path, err := pathOf(vaultPath+"/bindings/%s", name)
	if err != nil {
		return wire.CredentialBindingMetadata{}, err
	}
	return askEgress[wire.CredentialBindingMetadata](ctx, v.sandbox, http.MethodGet, path, nil)
}
