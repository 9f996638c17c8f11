package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	osb "github.com/osb-dev/osb/sdks/go"
	"github.com/osb-dev/osb/sdks/go/wire"
)

// call is one of sdks/conformance/README.md: the object it is made on and its arguments in, the result out. What a
// call leaves under a name comes as *held.
type call func(ctx context.Context, on any, with *arguments) (any, error)

// onObject is a call on an object of one type.
func onObject[T any](made func(ctx context.Context, on T, with *arguments) (any, error)) call {
	return func(ctx context.Context, on any, with *arguments) (any, error) { return made(ctx, on.(T), with) }
}

// plain is a call whose result is told as it is.
func plain[T, R any](made func(ctx context.Context, on T, with *arguments) (R, error)) call {
	return func(ctx context.Context, on any, with *arguments) (any, error) { return made(ctx, on.(T), with) }
}

// silent is a call without a result.
func silent[T any](made func(ctx context.Context, on T, with *arguments) error) call {
	return func(ctx context.Context, on any, with *arguments) (any, error) { return nil, made(ctx, on.(T), with) }
}

// shaped is a call whose result is told in this shape.
func shaped[T, R any](shape func(R) object, made func(ctx context.Context, on T, with *arguments) (R, error)) call {
	return func(ctx context.Context, on any, with *arguments) (any, error) {
		result, err := made(ctx, on.(T), with)
		if err != nil {
			return nil, err
		}
		return shape(result), nil
	}
}

// under is a result under one name.
func under[R any](name string) func(R) object {
	return func(result R) object { return object{name: result} }
}

// stream is what stream.next and stream.close are made on.
type stream struct {
	next  func() (any, error)
	close func()
}

// opened is a call that opens a stream, which outlives the call that opens it, and its context.
func opened[T, V any](made func(on T, with *arguments) (*osb.Stream[V], error)) call {
	return func(_ context.Context, on any, with *arguments) (any, error) {
		values, err := made(on.(T), with)
		if err != nil {
			return nil, err
		}
		end := func() { _ = values.Close() }
		return &held{value: &stream{func() (any, error) { return values.Next() }, end}, close: end}, nil
	}
}

// started is the same for executions.
func started[T any](made func(ctx context.Context, on T, with *arguments) (*osb.Execution, error)) call {
	return func(_ context.Context, on any, with *arguments) (any, error) {
		execution, err := made(context.Background(), on.(T), with)
		if err != nil {
			return nil, err
		}
		return &held{value: execution, close: func() { _ = execution.Close() }}, nil
	}
}

func heldSandbox(sandbox *osb.Sandbox, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return &held{value: sandbox, shown: object{"id": sandbox.ID}}, nil
}

// orNull is a value, or null at the end.
func orNull[V any](value V, err error, shape func(V) any) (any, error) {
	if err == io.EOF {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return shape(value), nil
}

func collected[V any](all iter.Seq2[V, error], limit *int) ([]V, error) {
	values := []V{}
	for value, err := range all {
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		if limit != nil && len(values) >= *limit {
			break
		}
	}
	return values, nil
}

var calls = map[string]call{}

func add(more map[string]call) {
	for name, made := range more {
		calls[name] = made
	}
}

func init() {
	add(clientCalls)
	add(operatorCalls)
	add(stockCalls)
	add(sandboxCalls)
	add(commandCalls)
	add(shellCalls)
	add(codeCalls)
	add(fileCalls)
	add(egressCalls)
	add(poolCalls)
}

var errLeft = errors.New("left by an error")

// inScope makes a sandbox in a function that defers its Close, and leaves it.
func inScope(ctx context.Context, client *osb.Client, with *arguments) (any, error) {
	id := ""
	err := func() error {
		sandbox, err := client.Create(ctx, with.Image, with.createOptions())
		if err != nil {
			return err
		}
		defer sandbox.Close(ctx)
		id = sandbox.ID
		if with.Keep {
			sandbox.Keep()
		}
		if with.Fail {
			return errLeft
		}
		return nil
	}()
	if err != nil && err != errLeft {
		return nil, err
	}
	return object{"id": id}, nil
}

// environment is that of the process, which only one call may change at a time.
var environment sync.Mutex

// loaded is settings from an environment and a file alone: the variables of this process, put back afterwards.
func loaded(_ context.Context, _ any, with *arguments) (any, error) {
	environment.Lock()
	defer environment.Unlock()
	home, err := os.MkdirTemp("", "osb-config-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	before := os.Environ()
	defer func() {
		os.Clearenv()
		for _, pair := range before {
			name, value, _ := strings.Cut(pair, "=")
			_ = os.Setenv(name, value)
		}
	}()
	for _, pair := range before {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OPEN_SANDBOX_") {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range with.Environment {
		_ = os.Setenv(name, value)
	}
	_ = os.Setenv("HOME", home)
	if with.File != nil {
		if err := os.Mkdir(filepath.Join(home, ".opensandbox"), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(osb.DefaultConfigFile(), []byte(*with.File), 0o600); err != nil {
			return nil, err
		}
	}
	config, err := osb.LoadConfig()
	if err != nil {
		return nil, err
	}
	client, err := osb.NewClient(config)
	if err != nil {
		return nil, err
	}
	base, err := client.Config().BaseURL()
	return object{
		"base_url": base, "request_timeout_ms": client.Config().RequestTimeout.Milliseconds(),
		"use_server_proxy": config.UseServerProxy, "has_api_key": config.APIKey != "",
	}, err
}

var clientCalls = map[string]call{
	"config.load": loaded,
	"client.new": func(_ context.Context, _ any, with *arguments) (any, error) {
		client, err := osb.NewClient(with.config())
		if err != nil {
			return nil, err
		}
		return &held{value: client}, nil
	},
	"client.health": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.HealthResponse, error) {
		return c.Health(ctx)
	}),
	"client.version": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.VersionResponse, error) {
		return c.Version(ctx)
	}),
	"client.get": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.SandboxInfo, error) {
		return c.Get(ctx, w.ID)
	}),
	"client.kill": silent(func(ctx context.Context, c *osb.Client, w *arguments) error { return c.Kill(ctx, w.ID) }),
	"client.list": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.ListSandboxesResponse, error) {
		return c.ListPage(ctx, w.sandboxFilter())
	}),
	"client.list_all": plain(func(ctx context.Context, c *osb.Client, w *arguments) ([]wire.SandboxInfo, error) {
		return collected(c.List(ctx, w.sandboxFilter()), w.Limit)
	}),
	"client.pause":  silent(func(ctx context.Context, c *osb.Client, w *arguments) error { return c.Pause(ctx, w.ID) }),
	"client.resume": silent(func(ctx context.Context, c *osb.Client, w *arguments) error { return c.Resume(ctx, w.ID) }),
	"client.request": onObject(func(ctx context.Context, c *osb.Client, w *arguments) (any, error) {
		return c.Request(ctx, w.Method, w.Path, w.Body)
	}),
	"client.get_snapshot": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.Snapshot, error) {
		return c.GetSnapshot(ctx, w.ID)
	}),
	"client.delete_snapshot": silent(func(ctx context.Context, c *osb.Client, w *arguments) error { return c.DeleteSnapshot(ctx, w.ID) }),
	"client.list_snapshots": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.ListSnapshotsResponse, error) {
		return c.ListSnapshotsPage(ctx, w.snapshotFilter())
	}),
	"client.list_all_snapshots": plain(func(ctx context.Context, c *osb.Client, w *arguments) ([]wire.Snapshot, error) {
		return collected(c.ListSnapshots(ctx, w.snapshotFilter()), w.Limit)
	}),
	"client.events": opened(func(c *osb.Client, w *arguments) (*osb.Stream[wire.LifecycleEvent], error) {
		return c.Events(context.Background(), &osb.EventsOptions{SandboxID: w.SandboxID, After: w.After})
	}),
	"client.follow_logs": opened(func(c *osb.Client, w *arguments) (*osb.Stream[wire.LogEvent], error) {
		tail := -1
		if w.Tail != nil {
			tail = *w.Tail
		}
		return c.FollowLogs(context.Background(), w.ID, tail)
	}),
	"stream.next": onObject(func(_ context.Context, s *stream, _ *arguments) (any, error) {
		value, err := s.next()
		return orNull(value, err, func(value any) any { return value })
	}),
	"stream.close": silent(func(_ context.Context, s *stream, _ *arguments) error {
		s.close()
		return nil
	}),
}

var operatorCalls = map[string]call{
	"client.create_template": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.Template, error) {
		return c.Operator.CreateTemplate(ctx, decode[wire.CreateTemplateRequest](w.Request))
	}),
	"client.get_template": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.Template, error) {
		return c.Operator.GetTemplate(ctx, w.ID)
	}),
	"client.list_templates": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.ListTemplatesResponse, error) {
		return c.Operator.ListTemplates(ctx, &osb.TemplateFilter{Metadata: w.Metadata, Page: w.Page, PageSize: w.PageSize})
	}),
	"client.delete_template": silent(func(ctx context.Context, c *osb.Client, w *arguments) error {
		return c.Operator.DeleteTemplate(ctx, w.ID)
	}),
	"client.create_pool": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.PoolResponse, error) {
		return c.Operator.CreatePool(ctx, decode[wire.CreatePoolRequest](w.Request))
	}),
	"client.get_pool": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.PoolResponse, error) {
		return c.Operator.GetPool(ctx, w.Name)
	}),
	"client.list_pools": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.ListPoolsResponse, error) {
		return c.Operator.ListPools(ctx)
	}),
	"client.update_pool": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.PoolResponse, error) {
		return c.Operator.UpdatePool(ctx, w.Name, decode[wire.UpdatePoolRequest](w.Request))
	}),
	"client.delete_pool": silent(func(ctx context.Context, c *osb.Client, w *arguments) error {
		return c.Operator.DeletePool(ctx, w.Name)
	}),
	"client.network_policy": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.PolicyStatusResponse, error) {
		return c.Operator.NetworkPolicy(ctx, w.ID)
	}),
	"client.set_network_policy": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.PolicyStatusResponse, error) {
		return c.Operator.SetNetworkPolicy(ctx, w.ID, decode[wire.NetworkPolicy](w.Policy))
	}),
	"client.patch_network_policy": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.PolicyStatusResponse, error) {
		return c.Operator.PatchNetworkPolicy(ctx, w.ID, w.Rules)
	}),
	"client.delete_network_policy": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.PolicyStatusResponse, error) {
		return c.Operator.DeleteNetworkPolicy(ctx, w.ID, w.Targets)
	}),
	"client.audit_events": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.ListAuditEventsResponse, error) {
		filter := &osb.AuditFilter{Resource: w.Resource, Actor: w.Actor, Before: w.Before}
		if w.Limit != nil {
			filter.Limit = *w.Limit
		}
		return c.Operator.AuditEvents(ctx, filter)
	}),
	"client.diagnostic_logs": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.DiagnosticContentResponse, error) {
		return c.Operator.DiagnosticLogs(ctx, w.ID, w.Scope)
	}),
	"client.diagnostic_events": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.DiagnosticContentResponse, error) {
		return c.Operator.DiagnosticEvents(ctx, w.ID, w.Scope)
	}),
	"client.diagnostics_text": shaped(under[string]("text"), func(ctx context.Context, c *osb.Client, w *arguments) (string, error) {
		parameters := map[string]string{}
		for name, value := range w.Query {
			parameters[name] = fmt.Sprint(value)
		}
		return c.Operator.DiagnosticsText(ctx, w.ID, w.Kind, parameters)
	}),
	"client.metrics_text": shaped(under[string]("text"), func(ctx context.Context, c *osb.Client, _ *arguments) (string, error) {
		return c.Operator.MetricsText(ctx)
	}),
	"client.openapi": onObject(func(ctx context.Context, c *osb.Client, _ *arguments) (any, error) {
		return c.Operator.OpenAPI(ctx)
	}),
	"client.report_event": silent(func(ctx context.Context, c *osb.Client, w *arguments) error {
		return c.Operator.ReportEvent(ctx, w.Event)
	}),
}

var stockCalls = map[string]call{
	"images.list": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.ListImagesResponse, error) {
		return c.Images.List(ctx)
	}),
	"images.prune": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.PruneImagesResponse, error) {
		return c.Images.Prune(ctx)
	}),
	"images.pull": opened(func(c *osb.Client, w *arguments) (*osb.Stream[wire.PullEvent], error) {
		return c.Images.Pull(context.Background(), w.Image, &osb.PullOptions{Platform: w.Platform})
	}),
	"images.import": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.ImportImagesResponse, error) {
		return c.Images.Import(ctx, packed(decode[map[string]string](w.Files)), w.Name)
	}),
	"images.export": onObject(func(ctx context.Context, c *osb.Client, w *arguments) (any, error) {
		archive, err := c.Images.Export(ctx, w.Reference)
		if err != nil {
			return nil, err
		}
		return entriesOf(archive, false)
	}),
	"images.tag": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.ImageInfo, error) {
		return c.Images.Tag(ctx, w.Reference, w.Name)
	}),
	"images.remove": silent(func(ctx context.Context, c *osb.Client, w *arguments) error { return c.Images.Remove(ctx, w.Reference) }),
	"keys.list": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.ListKeysResponse, error) {
		return c.Keys.List(ctx)
	}),
	"keys.create": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.NewAPIKey, error) {
		return c.Keys.Create(ctx, decode[wire.CreateKeyRequest](w.Request))
	}),
	"keys.create_token": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.NewAPIKey, error) {
		return c.Keys.CreateToken(ctx, decode[wire.CreateTokenRequest](w.Request))
	}),
	"keys.rotate": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.NewAPIKey, error) {
		return c.Keys.Rotate(ctx, w.ID, wire.RotateKeyRequest{GraceSeconds: w.GraceS})
	}),
	"keys.revoke": silent(func(ctx context.Context, c *osb.Client, w *arguments) error { return c.Keys.Revoke(ctx, w.ID) }),
	"tenants.list": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.ListTenantsResponse, error) {
		return c.Tenants.List(ctx)
	}),
	"tenants.get": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.Tenant, error) {
		return c.Tenants.Get(ctx, w.Name)
	}),
	"tenants.create": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.Tenant, error) {
		return c.Tenants.Create(ctx, w.Name)
	}),
	"tenants.remove": silent(func(ctx context.Context, c *osb.Client, w *arguments) error { return c.Tenants.Remove(ctx, w.Name) }),
	"volumes.list": plain(func(ctx context.Context, c *osb.Client, _ *arguments) (wire.ListVolumesResponse, error) {
		return c.Volumes.List(ctx)
	}),
	"volumes.create": plain(func(ctx context.Context, c *osb.Client, w *arguments) (wire.VolumeSummary, error) {
		return c.Volumes.Create(ctx, w.Name)
	}),
	"volumes.remove": silent(func(ctx context.Context, c *osb.Client, w *arguments) error {
		return c.Volumes.Remove(ctx, w.Name, w.Force)
	}),
}

var sandboxCalls = map[string]call{
	"sandbox.create": onObject(func(ctx context.Context, c *osb.Client, w *arguments) (any, error) {
		return heldSandbox(c.Create(ctx, w.Image, w.createOptions()))
	}),
	"sandbox.connect": onObject(func(ctx context.Context, c *osb.Client, w *arguments) (any, error) {
		ready := duration(w.TimeoutMS, time.Millisecond)
		return heldSandbox(osb.Connect(ctx, w.ID, &osb.ConnectOptions{Client: c, ReadyTimeout: ready, Resume: w.Resume}))
	}),
	"sandbox.scope":   onObject(inScope),
	"sandbox.info":    plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) (wire.SandboxInfo, error) { return s.Info(ctx) }),
	"sandbox.metrics": plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) (wire.Metrics, error) { return s.Metrics(ctx) }),
	"sandbox.kill":    silent(func(ctx context.Context, s *osb.Sandbox, _ *arguments) error { return s.Kill(ctx) }),
	"sandbox.pause":   silent(func(ctx context.Context, s *osb.Sandbox, _ *arguments) error { return s.Pause(ctx) }),
	"sandbox.resume":  silent(func(ctx context.Context, s *osb.Sandbox, _ *arguments) error { return s.Resume(ctx) }),
	"sandbox.ping":    silent(func(ctx context.Context, s *osb.Sandbox, _ *arguments) error { return s.Ping(ctx) }),
	"sandbox.is_healthy": shaped(under[bool]("healthy"), func(ctx context.Context, s *osb.Sandbox, _ *arguments) (bool, error) {
		return s.Healthy(ctx)
	}),
	"sandbox.renew": shaped(under[time.Time]("expires_at"), func(ctx context.Context, s *osb.Sandbox, w *arguments) (time.Time, error) {
		return s.Renew(ctx, w.lifetime())
	}),
	"sandbox.patch_metadata": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.SandboxInfo, error) {
		return s.PatchMetadata(ctx, w.Patch)
	}),
	"sandbox.wait_for_state": silent(func(ctx context.Context, s *osb.Sandbox, w *arguments) error {
		return s.WaitForState(ctx, w.State, duration(w.TimeoutMS, time.Millisecond))
	}),
	"sandbox.endpoint": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.Endpoint, error) {
		return s.Endpoint(ctx, w.Port)
	}),
	"sandbox.url": onObject(func(ctx context.Context, s *osb.Sandbox, w *arguments) (any, error) {
		url, headers, err := s.URL(ctx, w.Port)
		return object{"url": url, "headers": headers}, err
	}),
	"sandbox.signed_endpoint": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.Endpoint, error) {
		return s.SignedEndpoint(ctx, w.Port, time.Now().Add(duration(w.ExpiresInS, time.Second)))
	}),
	"sandbox.link": onObject(func(ctx context.Context, s *osb.Sandbox, w *arguments) (any, error) {
		link, err := s.Link(ctx, w.Port, time.Now().Add(duration(w.ExpiresInS, time.Second)))
		return object{"link": link}, err
	}),
	"sandbox.snapshot": plain(func(ctx context.Context, s *osb.Sandbox, w *arguments) (wire.Snapshot, error) {
		return s.Snapshot(ctx, w.Name)
	}),
	"sandbox.watch_metrics": opened(func(s *osb.Sandbox, _ *arguments) (*osb.Stream[wire.Metrics], error) {
		return s.WatchMetrics(context.Background())
	}),
	"sandbox.tunnel": onObject(func(ctx context.Context, s *osb.Sandbox, w *arguments) (any, error) {
		tunnel, err := s.Tunnel(ctx, w.Port)
		if err != nil {
			return nil, err
		}
		return &held{value: tunnel, close: func() { _ = tunnel.Close() }}, nil
	}),
	"sandbox.isolated_capabilities": plain(func(ctx context.Context, s *osb.Sandbox, _ *arguments) (wire.IsolatedCapabilities, error) {
		return s.IsolatedCapabilities(ctx)
	}),
	"tunnel.write": silent(func(_ context.Context, t net.Conn, w *arguments) error {
		_, err := io.WriteString(t, w.Text)
		return err
	}),
	"tunnel.read": onObject(func(_ context.Context, t net.Conn, w *arguments) (any, error) {
		text, err := io.ReadAll(io.LimitReader(t, w.Bytes))
		return object{"text": string(text)}, err
	}),
	"tunnel.close": silent(func(_ context.Context, t net.Conn, _ *arguments) error { return t.Close() }),
}
