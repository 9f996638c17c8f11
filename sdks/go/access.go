package osb

import (
	"context"
	"net/http"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// Keys are the API keys of a server, and tokens made from them. An extension of the protocol, for administrators, but
// for tokens.
type Keys struct{ server *target }

// List is all that the caller looks after, and tokens that are good.
func (k *Keys) List(ctx context.Context) (wire.ListKeysResponse, error) {
	return sendJSON[wire.ListKeysResponse](ctx, k.server, http.MethodGet, "/keys", call{})
}

// Create makes a key, whose value is shown this once.
func (k *Keys) Create(ctx context.Context, request wire.CreateKeyRequest) (wire.NewAPIKey, error) {
	return sendJSON[wire.NewAPIKey](ctx, k.server, http.MethodPost, "/keys", call{json: request})
}

// Rotate gives a key a new value. What is open with the old one ends, and it is good for as long as the request says.
func (k *Keys) Rotate(ctx context.Context, id string, request wire.RotateKeyRequest) (wire.NewAPIKey, error) {
	return atID[wire.NewAPIKey](ctx, k.server, http.MethodPost, "/keys/%s/rotate", id, call{json: request})
}

// Revoke revokes a key with its tokens; what is open with them ends.
func (k *Keys) Revoke(ctx context.Context, id string) error {
	return doneAtID(ctx, k.server, http.MethodDelete, "/keys/%s", id, call{})
}

// CreateToken makes a token from this client's own key: a key for a short time that may do no more.
func (k *Keys) CreateToken(ctx context.Context, request wire.CreateTokenRequest) (wire.NewAPIKey, error) {
	return sendJSON[wire.NewAPIKey](ctx, k.server, http.MethodPost, "/tokens", call{json: request})
}

// Tenants are those of a server. An extension of the protocol, for administrators.
type Tenants struct{ server *target }

// List is all but the built-in one.
func (t *Tenants) List(ctx context.Context) (wire.ListTenantsResponse, error) {
	return sendJSON[wire.ListTenantsResponse](ctx, t.server, http.MethodGet, "/tenants", call{})
}

// Get is one of them.
func (t *Tenants) Get(ctx context.Context, name string) (wire.Tenant, error) {
	return atID[wire.Tenant](ctx, t.server, http.MethodGet, "/tenants/%s", name, call{})
}

// Create makes a tenant.
func (t *Tenants) Create(ctx context.Context, name string) (wire.Tenant, error) {
	sent := call{json: wire.CreateTenantRequest{Name: name}}
	return sendJSON[wire.Tenant](ctx, t.server, http.MethodPost, "/tenants", sent)
}

// Remove removes a tenant that has nothing any more, with its keys.
func (t *Tenants) Remove(ctx context.Context, name string) error {
	return doneAtID(ctx, t.server, http.MethodDelete, "/tenants/%s", name, call{})
}
