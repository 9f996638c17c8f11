package osb

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/osb-dev/osb/sdks/go/wire"
)

const (
	// Where the daemon in every sandbox listens.
	execPort = 44772
	// Where the egress API of a sandbox is asked for.
	egressPort = 18080
)

// Sandbox is a place to run things in. One that was made here ends with [Sandbox.Close], unless it is kept;
// one that was connected to does not. It may be used by any number of goroutines.
type Sandbox struct {
	// ID is what the server calls it.
	ID string
	// Client is what it is reached by.
	Client *Client
	// Commands run in it.
	Commands *Commands
	// Sessions are live shells.
	Sessions *Sessions
	// Terminals are shells with a screen.
	Terminals *Terminals
	// Files are its files and directories.
	Files *Files
	// Code remembers.
	Code *Code
	// Egress is what it may reach.
	Egress *Egress
	// CredentialVault has credentials that are put into its requests on the way out.
	CredentialVault *CredentialVault

	isOwned atomic.Bool
	mutex   sync.Mutex
	// Where the daemon and the egress API are, once asked for.
	targets map[int]*target
}

func newSandbox(client *Client, id string, isOwned bool) *Sandbox {
	s := &Sandbox{ID: id, Client: client, targets: map[int]*target{}}
	s.isOwned.Store(isOwned)
	s.Commands, s.Sessions, s.Terminals, s.Files = &Commands{s}, &Sessions{s}, &Terminals{s}, &Files{sandbox: s}
	s.Code, s.Egress, s.CredentialVault = &Code{s}, &Egress{s}, &CredentialVault{s}
	return s
}

// Close ends a sandbox that was made here, unless it is kept. It does so also when the context is over
// already, so that a deferred Close always counts; its time is then the client's RequestTimeout.
func (s *Sandbox) Close(ctx context.Context) error {
	if !s.isOwned.Load() {
		return nil
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Client.config.RequestTimeout)
	defer cancel()
	return s.Kill(limited)
}

// Keep lets it outlive its Close.
func (s *Sandbox) Keep() { s.isOwned.Store(false) }

// Kill ends it. One that is already gone is no error.
func (s *Sandbox) Kill(ctx context.Context) error {
	if err := s.Client.Kill(ctx, s.ID); err != nil && !isNotFound(err) {
		return err
	}
	return nil
}

// Info is what the server knows of it.
func (s *Sandbox) Info(ctx context.Context) (wire.SandboxInfo, error) { return s.Client.Get(ctx, s.ID) }

// Metrics are what it uses now.
func (s *Sandbox) Metrics(ctx context.Context) (wire.Metrics, error) {
	exec, err := s.exec(ctx)
	if err != nil {
		return wire.Metrics{}, err
	}
	return sendJSON[wire.Metrics](ctx, exec, http.MethodGet, "/metrics", call{})
}

// WatchMetrics are what it uses, each second.
func (s *Sandbox) WatchMetrics(ctx context.Context) (*Stream[wire.Metrics], error) {
	exec, err := s.exec(ctx)
	if err != nil {
		return nil, err
	}
	got, err := exec.send(ctx, http.MethodGet, "/metrics/watch", call{})
	if err != nil {
		return nil, err
	}
	return newStream[wire.Metrics](got, "metrics"), nil
}

// Ping asks the daemon in it whether it is up.
func (s *Sandbox) Ping(ctx context.Context) error {
	exec, err := s.exec(ctx)
	if err != nil {
		return err
	}
	return exec.done(ctx, http.MethodGet, "/ping", call{})
}

// Healthy says whether the daemon in it answers. The error is that of the context.
func (s *Sandbox) Healthy(ctx context.Context) (bool, error) {
	err := s.Ping(ctx)
	if asError(err) != nil {
		return false, nil
	}
	return err == nil, err
}

// Endpoint is where one of its ports is reached from outside.
func (s *Sandbox) Endpoint(ctx context.Context, port int) (wire.Endpoint, error) {
	return s.Client.Endpoint(ctx, s.ID, port)
}

// SignedEndpoint is the same, good for anyone until it expires.
func (s *Sandbox) SignedEndpoint(ctx context.Context, port int, expires time.Time) (wire.Endpoint, error) {
	return s.Client.SignedEndpoint(ctx, s.ID, port, expires)
}

// URL is that of one of its ports, and the headers to send.
func (s *Sandbox) URL(ctx context.Context, port int) (url string, headers map[string]string, err error) {
	at, err := s.target(ctx, port)
	if err != nil {
		return "", nil, err
	}
	return at.base, maps.Clone(at.headers), nil
}

// PreviewURL is a link to one of its ports that lets anyone in until it expires. The server must have a key
// to sign with.
func (s *Sandbox) PreviewURL(ctx context.Context, port int, expires time.Time) (string, error) {
	endpoint, err := s.SignedEndpoint(ctx, port, expires)
	return s.urlOf(endpoint), err
}

// Link is a link by which a browser reaches one of its ports, good for once (extension). The browser is let in
// until then, or for as long as the server says where that is zero. Needs a server with an ingress gateway.
func (s *Sandbox) Link(ctx context.Context, port int, until time.Time) (string, error) {
	expires := ""
	if !until.IsZero() {
		expires = strconv.FormatInt(until.Unix(), 10)
	}
	asked := call{query: queryOf("link", "true", "expires", expires)}
	endpoint, err := atID[wire.Endpoint](
		ctx, s.Client.server, http.MethodGet, "/sandboxes/%s/endpoints/"+strconv.Itoa(port), s.ID, asked)
	if err == nil && endpoint.Link == "" {
		err = argumentError("the server knows no links; use one with an ingress gateway")
	}
	return endpoint.Link, err
}

// Do sends a request to one of its ports. Of the request's URL the path and the query count.
func (s *Sandbox) Do(port int, request *http.Request) (*http.Response, error) {
	at, err := s.target(request.Context(), port)
	if err != nil {
		return nil, err
	}
	path := "/" + strings.TrimLeft(request.URL.RequestURI(), "/")
	sent, err := http.NewRequestWithContext(request.Context(), request.Method, at.base+path, request.Body)
	if err != nil {
		return nil, argumentError("%s is not a place to ask: %v", path, err)
	}
	sent.ContentLength, sent.GetBody, sent.Header = request.ContentLength, request.GetBody, request.Header.Clone()
	at.setHeaders(sent.Header)
	answered, err := at.config.Transport.RoundTrip(sent)
	if err != nil {
		return nil, failure(request.Context(), at.base+request.URL.Path, err)
	}
	return answered, nil
}

// Renew lets it live this much longer, from now; it returns when it ends.
func (s *Sandbox) Renew(ctx context.Context, lifetime time.Duration) (time.Time, error) {
	return s.Client.Renew(ctx, s.ID, lifetime)
}

// PatchMetadata sets labels, and removes those that are nil.
func (s *Sandbox) PatchMetadata(ctx context.Context, patch map[string]*string) (wire.SandboxInfo, error) {
	return s.Client.PatchMetadata(ctx, s.ID, patch)
}

// Pause freezes it and waits until it is frozen.
func (s *Sandbox) Pause(ctx context.Context) error { return s.Client.Pause(ctx, s.ID) }

// Resume lets it run on and waits until it runs.
func (s *Sandbox) Resume(ctx context.Context) error {
	s.mutex.Lock()
	// It may come back at another address.
	clear(s.targets)
	s.mutex.Unlock()
	return s.Client.Resume(ctx, s.ID)
}

// WaitForState waits until it is in this state, for at most this time, 0 the usual time; it fails when it
// gets into a state from which this one never comes.
func (s *Sandbox) WaitForState(ctx context.Context, state wire.SandboxState, timeout time.Duration) error {
	return s.Client.WaitForState(ctx, s.ID, state, timeout)
}

// Snapshot keeps a copy of its filesystem and waits until sandboxes can be made from it. The name may be empty.
func (s *Sandbox) Snapshot(ctx context.Context, name string) (wire.Snapshot, error) {
	begun, err := s.Client.CreateSnapshot(ctx, s.ID, name)
	if err != nil {
		return begun, err
	}
	return s.Client.WaitForSnapshot(ctx, begun.ID, 0)
}

// DiagnosticLogs are its logs for whoever looks for what went wrong; "container" and "all" are scopes.
func (s *Sandbox) DiagnosticLogs(ctx context.Context, scope string) (wire.DiagnosticContentResponse, error) {
	return s.Client.Operator.DiagnosticLogs(ctx, s.ID, scope)
}

// DiagnosticEvents are what happened to it; "runtime" and "all" are scopes.
func (s *Sandbox) DiagnosticEvents(ctx context.Context, scope string) (wire.DiagnosticContentResponse, error) {
	return s.Client.Operator.DiagnosticEvents(ctx, s.ID, scope)
}

// IsolatedCapabilities are which isolation its daemon has for sessions of their own.
func (s *Sandbox) IsolatedCapabilities(ctx context.Context) (wire.IsolatedCapabilities, error) {
	exec, err := s.exec(ctx)
	if err != nil {
		return wire.IsolatedCapabilities{}, err
	}
	return sendJSON[wire.IsolatedCapabilities](ctx, exec, http.MethodGet, "/v1/isolated/capabilities", call{})
}

// exec is the daemon inside.
func (s *Sandbox) exec(ctx context.Context) (*target, error) { return s.keptTarget(ctx, execPort) }

// egressAPI is where its policy and its vault are asked for.
func (s *Sandbox) egressAPI(ctx context.Context) (*target, error) {
	return s.keptTarget(ctx, egressPort)
}

func (s *Sandbox) keptTarget(ctx context.Context, port int) (*target, error) {
	s.mutex.Lock()
	at := s.targets[port]
	s.mutex.Unlock()
	if at != nil {
		return at, nil
	}
	// Not under the lock: asking twice costs a request, waiting behind one that stalls costs its caller's time.
	at, err := s.target(ctx, port)
	if err == nil {
		s.mutex.Lock()
		s.targets[port] = at
		s.mutex.Unlock()
	}
	return at, err
}

func (s *Sandbox) target(ctx context.Context, port int) (*target, error) {
	endpoint, err := s.Endpoint(ctx, port)
	if err != nil {
		return nil, err
	}
	config := &s.Client.config
	headers := map[string]string{}
	// Only the server may see the key; a sandbox never does.
	if config.APIKey != "" && config.UseServerProxy {
		headers[apiKeyHeader] = config.APIKey
	}
	maps.Copy(headers, endpoint.Headers)
	return &target{config: config, base: s.urlOf(endpoint), headers: headers}, nil
}

func (s *Sandbox) urlOf(endpoint wire.Endpoint) string {
	address := strings.TrimRight(endpoint.Endpoint, "/")
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return s.Client.config.Protocol + "://" + address
}
