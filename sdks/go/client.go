package osb

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// changeTimeout is how long pausing, resuming and snapshots may take before waiting for them ends.
const changeTimeout = 5 * time.Minute

// SandboxFilter says which sandboxes; nil is all.
type SandboxFilter struct {
	// States are those of which a sandbox has one; none is all.
	States []wire.SandboxState
	// Metadata are labels that a sandbox has all of.
	Metadata map[string]string
	// Page counts from 1; 0 is the first.
	Page int
	// PageSize is how many a page has, at most 200.
	PageSize int
}

// SnapshotFilter says which snapshots; nil is all.
type SnapshotFilter struct {
	// SandboxID is the sandbox that they are of.
	SandboxID string
	// Name is what they are called.
	Name string
	// States are those of which a snapshot has one; none is all.
	States []wire.SnapshotState
	// Page counts from 1; 0 is the first.
	Page int
	// PageSize is how many a page has, at most 200.
	PageSize int
}

// EventsOptions says which events; nil is all from now on.
type EventsOptions struct {
	// SandboxID is the sandbox that they are of.
	SandboxID string
	// After is the event after which they begin.
	After *int64
}

// Client is the control plane: sandboxes by their ids, lists, snapshots, events. It may be used by any number
// of goroutines and has nothing to close.
type Client struct {
	// Images are those that the server keeps (extension).
	Images *Images
	// Keys are the API keys of the server (extension).
	Keys *Keys
	// Tenants are those of the server (extension).
	Tenants *Tenants
	// Volumes are the named ones that the server keeps (extension).
	Volumes *Volumes
	// Operator has templates, pools of the server, policies, diagnostics and the audit record.
	Operator *Operator

	config Config
	server *target
	root   *target
}

// NewClient is a client with these settings. It sends nothing yet.
func NewClient(config Config) (*Client, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	c := &Client{config: config}
	headers := map[string]string{}
	if config.APIKey != "" {
		headers[apiKeyHeader] = config.APIKey
	}
	c.root = &target{config: &c.config, base: config.Domain, headers: headers}
	c.server = &target{config: &c.config, base: config.Domain + "/v1", headers: headers}
	c.Keys, c.Tenants = &Keys{c.server}, &Tenants{c.server}
	c.Images, c.Volumes, c.Operator = &Images{c.server}, &Volumes{c.server}, &Operator{c.server, c.root}
	return c, nil
}

// clientOf is the client that was given, or one with these settings, or one with those of [LoadConfig].
func clientOf(client *Client, config *Config) (*Client, error) {
	if client != nil {
		return client, nil
	}
	if config == nil {
		loaded, err := LoadConfig()
		if err != nil {
			return nil, err
		}
		config = &loaded
	}
	return NewClient(*config)
}

// Config is the client's settings, complete.
func (c *Client) Config() Config { return c.config }

// Create makes a sandbox and waits until it can be used.
func (c *Client) Create(ctx context.Context, image string, options *CreateOptions) (*Sandbox, error) {
	return create(ctx, c, image, options)
}

// Connect connects to a sandbox that exists.
func (c *Client) Connect(ctx context.Context, id string, options *ConnectOptions) (*Sandbox, error) {
	return connect(ctx, c, id, options)
}

// Sandbox is a handle to a sandbox, without any request.
func (c *Client) Sandbox(id string) *Sandbox { return newSandbox(c, id, false) }

// CreateRequest sends a request to make a sandbox and does not wait until it is ready. Our server answers
// when it is; timeout is how long that may take, 0 the usual time. With a key that is not empty the server
// makes one sandbox however often the request comes (extension).
func (c *Client) CreateRequest(
	ctx context.Context, request wire.CreateSandboxRequest, idempotencyKey string, timeout time.Duration,
) (wire.CreateSandboxResponse, error) {
	if timeout == 0 {
		timeout = DefaultReadyTimeout
	}
	sent := call{json: request, timeout: max(timeout, c.config.RequestTimeout)}
	if idempotencyKey != "" {
		sent.headers, sent.repeatable = map[string]string{"Idempotency-Key": idempotencyKey}, true
	}
	return sendJSON[wire.CreateSandboxResponse](ctx, c.server, http.MethodPost, "/sandboxes", sent)
}

// Get is what the server knows of a sandbox.
func (c *Client) Get(ctx context.Context, id string) (wire.SandboxInfo, error) {
	return atID[wire.SandboxInfo](ctx, c.server, http.MethodGet, "/sandboxes/%s", id, call{})
}

// atID sends a request to a path with an id in it.
func atID[T any](ctx context.Context, t *target, method, format, id string, c call) (T, error) {
	path, err := pathOf(format, id)
	if err != nil {
		var none T
		return none, err
	}
	return sendJSON[T](ctx, t, method, path, c)
}

// doneAtID is the same for an answer without a body.
func doneAtID(ctx context.Context, t *target, method, format, id string, c call) error {
	path, err := pathOf(format, id)
	if err != nil {
		return err
	}
	return t.done(ctx, method, path, c)
}

// List are the sandboxes, newest first, page by page as they are read.
func (c *Client) List(ctx context.Context, filter *SandboxFilter) iter.Seq2[wire.SandboxInfo, error] {
	var given SandboxFilter
	if filter != nil {
		given = *filter
	}
	return pages(given.Page, func(page int) ([]wire.SandboxInfo, bool, error) {
		given.Page = page
		got, err := c.ListPage(ctx, &given)
		return got.Items, got.Pagination.HasNextPage, err
	})
}

// pages are the items of one page after the other.
func pages[T any](first int, fetch func(page int) ([]T, bool, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page := max(first, 1); ; page++ {
			items, hasNext, err := fetch(page)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if !hasNext {
				return
			}
		}
	}
}

// ListPage is one page of sandboxes, newest first.
func (c *Client) ListPage(ctx context.Context, filter *SandboxFilter) (wire.ListSandboxesResponse, error) {
	var given SandboxFilter
	if filter != nil {
		given = *filter
	}
	var query strings.Builder
	for _, state := range given.States {
		addPair(&query, "state", string(state))
	}
	addPage(&query, given.Metadata, given.Page, given.PageSize)
	return sendJSON[wire.ListSandboxesResponse](ctx, c.server, http.MethodGet, "/sandboxes", call{query: query.String()})
}

func addPage(query *strings.Builder, metadata map[string]string, page, size int) {
	var labels strings.Builder
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		addPair(&labels, name, metadata[name])
	}
	// A query inside the query: its names and values are encoded once more.
	for name, value := range map[string]string{"metadata": labels.String(), "page": number(page), "pageSize": number(size)} {
		if value != "" {
			addPair(query, name, value)
		}
	}
}

// Kill ends a sandbox.
func (c *Client) Kill(ctx context.Context, id string) error {
	return doneAtID(ctx, c.server, http.MethodDelete, "/sandboxes/%s", id, call{})
}

// Pause freezes a sandbox and waits until it is frozen.
func (c *Client) Pause(ctx context.Context, id string) error {
	if err := doneAtID(ctx, c.server, http.MethodPost, "/sandboxes/%s/pause", id, call{}); err != nil {
		return err
	}
	return c.WaitForState(ctx, id, wire.SandboxStatePaused, 0)
}

// Resume lets a sandbox run on and waits until it runs.
func (c *Client) Resume(ctx context.Context, id string) error {
	if err := doneAtID(ctx, c.server, http.MethodPost, "/sandboxes/%s/resume", id, call{}); err != nil {
		return err
	}
	return c.WaitForState(ctx, id, wire.SandboxStateRunning, 0)
}

// WaitForState waits until a sandbox is in this state, for at most this time, 0 the usual time; it fails when
// the sandbox gets into a state from which this one never comes.
func (c *Client) WaitForState(ctx context.Context, id string, wanted wire.SandboxState, timeout time.Duration) error {
	what := "sandbox " + id + " to be " + string(wanted)
	return c.until(ctx, what, id, timeout, func(ctx context.Context) (bool, error) {
		info, err := c.Get(ctx, id)
		if err != nil || info.Status.State == wanted {
			return err == nil, err
		}
		switch info.Status.State {
		case wire.SandboxStateFailed, wire.SandboxStateTerminated:
			return false, failedError("sandbox "+id, string(info.Status.State), info.Status.Message)
		}
		return false, nil
	})
}

// Renew lets a sandbox live this much longer, from now; it returns when it ends.
func (c *Client) Renew(ctx context.Context, id string, lifetime time.Duration) (time.Time, error) {
	request := wire.RenewSandboxExpirationRequest{ExpiresAt: time.Now().Add(lifetime).UTC()}
	renewed, err := atID[wire.RenewSandboxExpirationResponse](
		ctx, c.server, http.MethodPost, "/sandboxes/%s/renew-expiration", id, call{json: request})
	return renewed.ExpiresAt, err
}

// PatchMetadata sets labels of a sandbox, and removes those that are nil.
func (c *Client) PatchMetadata(ctx context.Context, id string, patch map[string]*string) (wire.SandboxInfo, error) {
	return atID[wire.SandboxInfo](ctx, c.server, http.MethodPatch, "/sandboxes/%s/metadata", id, call{json: patch})
}

// Endpoint is where a port of a sandbox is reached from outside.
func (c *Client) Endpoint(ctx context.Context, id string, port int) (wire.Endpoint, error) {
	return c.endpoint(ctx, id, port, "")
}

// SignedEndpoint is the same, good for anyone until it expires. The server must have a key to sign with.
func (c *Client) SignedEndpoint(ctx context.Context, id string, port int, expires time.Time) (wire.Endpoint, error) {
	return c.endpoint(ctx, id, port, strconv.FormatInt(expires.Unix(), 10))
}

func (c *Client) endpoint(ctx context.Context, id string, port int, expires string) (wire.Endpoint, error) {
	useProxy := ""
	if c.config.UseServerProxy {
		useProxy = "true"
	}
	asked := call{
		query: queryOf("expires", expires, "use_server_proxy", useProxy),
		// Held until the sandbox is ready, which may take as long as its image takes to come.
		timeout: max(DefaultReadyTimeout, c.config.RequestTimeout),
	}
	return atID[wire.Endpoint](ctx, c.server, http.MethodGet, "/sandboxes/%s/endpoints/"+strconv.Itoa(port), id, asked)
}

// CreateSnapshot begins a copy of a sandbox's filesystem. The name may be empty.
func (c *Client) CreateSnapshot(ctx context.Context, id, name string) (wire.Snapshot, error) {
	// A server may answer only when the copy is made.
	asked := call{json: wire.CreateSnapshotRequest{Name: name}, timeout: changeTimeout}
	return atID[wire.Snapshot](ctx, c.server, http.MethodPost, "/sandboxes/%s/snapshots", id, asked)
}

// GetSnapshot is a snapshot.
func (c *Client) GetSnapshot(ctx context.Context, id string) (wire.Snapshot, error) {
	return atID[wire.Snapshot](ctx, c.server, http.MethodGet, "/snapshots/%s", id, call{})
}

// WaitForSnapshot waits until sandboxes can be made from a snapshot, for at most this time, 0 the usual time.
func (c *Client) WaitForSnapshot(ctx context.Context, id string, timeout time.Duration) (wire.Snapshot, error) {
	var snapshot wire.Snapshot
	err := c.until(ctx, "snapshot "+id+" to be ready", "", timeout, func(ctx context.Context) (bool, error) {
		var err error
		if snapshot, err = c.GetSnapshot(ctx, id); err != nil {
			return false, err
		}
		switch snapshot.Status.State {
		case wire.SnapshotStateFailed, wire.SnapshotStateDeleting:
			return false, failedError("snapshot "+id, string(snapshot.Status.State), snapshot.Status.Message)
		}
		return snapshot.Status.State == wire.SnapshotStateReady, nil
	})
	return snapshot, err
}

// ListSnapshots are the snapshots, newest first, page by page as they are read.
func (c *Client) ListSnapshots(ctx context.Context, filter *SnapshotFilter) iter.Seq2[wire.Snapshot, error] {
	var given SnapshotFilter
	if filter != nil {
		given = *filter
	}
	return pages(given.Page, func(page int) ([]wire.Snapshot, bool, error) {
		given.Page = page
		got, err := c.ListSnapshotsPage(ctx, &given)
		return got.Items, got.Pagination.HasNextPage, err
	})
}

// ListSnapshotsPage is one page of snapshots, newest first.
func (c *Client) ListSnapshotsPage(ctx context.Context, filter *SnapshotFilter) (wire.ListSnapshotsResponse, error) {
	var given SnapshotFilter
	if filter != nil {
		given = *filter
	}
	var query strings.Builder
	query.WriteString(queryOf("sandboxId", given.SandboxID, "name", given.Name))
	for _, state := range given.States {
		addPair(&query, "state", string(state))
	}
	addPage(&query, nil, given.Page, given.PageSize)
	return sendJSON[wire.ListSnapshotsResponse](ctx, c.server, http.MethodGet, "/snapshots", call{query: query.String()})
}

// DeleteSnapshot removes a snapshot.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	return doneAtID(ctx, c.server, http.MethodDelete, "/snapshots/%s", id, call{})
}

// Events are what happens to sandboxes, as it happens (extension).
func (c *Client) Events(ctx context.Context, options *EventsOptions) (*Stream[wire.LifecycleEvent], error) {
	var query string
	if options != nil {
		after := ""
		if options.After != nil {
			after = strconv.FormatInt(*options.After, 10)
		}
		query = queryOf("sandboxId", options.SandboxID, "after", after)
	}
	got, err := c.server.send(ctx, http.MethodGet, "/events", call{query: query})
	if err != nil {
		return nil, err
	}
	return newStream[wire.LifecycleEvent](got, "events"), nil
}

// FollowLogs is what a sandbox's main program prints, as it does, after at most so many of the lines before,
// -1 for all that are kept (extension). The last event is "end"; a stream that ends without it was cut off.
func (c *Client) FollowLogs(ctx context.Context, id string, tail int) (*Stream[wire.LogEvent], error) {
	path, err := pathOf("/sandboxes/%s/logs", id)
	if err != nil {
		return nil, err
	}
	query := ""
	if tail >= 0 {
		query = queryOf("tail", strconv.Itoa(tail))
	}
	got, err := c.server.send(ctx, http.MethodGet, path, call{query: query})
	if err != nil {
		return nil, err
	}
	return newStream[wire.LogEvent](got, "a log"), nil
}

// Health says whether the server is well.
func (c *Client) Health(ctx context.Context) (wire.HealthResponse, error) {
	return sendJSON[wire.HealthResponse](ctx, c.root, http.MethodGet, "/health", call{})
}

// Version is that of the contract that the server speaks.
func (c *Client) Version(ctx context.Context) (wire.VersionResponse, error) {
	return sendJSON[wire.VersionResponse](ctx, c.root, http.MethodGet, "/version", call{})
}

// Request is any request of the control plane that has no method of its own yet: a path below /v1 with its
// encoded query, and a body that is sent as JSON unless it is nil. It returns nil for an answer without a body.
func (c *Client) Request(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	path, query, _ := strings.Cut(path, "?")
	content, err := c.server.bytes(ctx, method, path, call{query: query, json: body})
	if err != nil || len(content) == 0 {
		return nil, err
	}
	if !json.Valid(content) {
		return nil, unreadableError(method+" "+path, errNotJSON)
	}
	return content, nil
}
