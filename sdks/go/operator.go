package osb

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/osb-dev/osb/sdks/go/wire"
)

// AuditFilter says which changes of the audit record; nil is the newest.
type AuditFilter struct {
	// Resource is the sandbox or snapshot that they are about.
	Resource string
	// Actor is who made them.
	Actor string
	// Before is the one that they are older than.
	Before int64
	// Limit is how many there are at most.
	Limit int
}

// TemplateFilter says which templates; nil is all.
type TemplateFilter struct {
	// Metadata are labels that a template has all of.
	Metadata map[string]string
	// Page counts from 1; 0 is the first.
	Page int
	// PageSize is how many a page has.
	PageSize int
}

// Operator has what those who run a server ask for: templates, its pools, policies by the control plane,
// diagnostics, the audit record, its own metrics and API document.
type Operator struct{ server, root *target }

// CreateTemplate begins to build a template.
func (o *Operator) CreateTemplate(ctx context.Context, request wire.CreateTemplateRequest) (wire.Template, error) {
	return sendJSON[wire.Template](ctx, o.server, http.MethodPost, "/templates", call{json: request})
}

// GetTemplate is a template.
func (o *Operator) GetTemplate(ctx context.Context, id string) (wire.Template, error) {
	return atID[wire.Template](ctx, o.server, http.MethodGet, "/templates/%s", id, call{})
}

// ListTemplates is one page of templates.
func (o *Operator) ListTemplates(ctx context.Context, filter *TemplateFilter) (wire.ListTemplatesResponse, error) {
	var query strings.Builder
	if filter != nil {
		addPage(&query, filter.Metadata, filter.Page, filter.PageSize)
	}
	return sendJSON[wire.ListTemplatesResponse](ctx, o.server, http.MethodGet, "/templates", call{query: query.String()})
}

// DeleteTemplate removes a template.
func (o *Operator) DeleteTemplate(ctx context.Context, id string) error {
	return doneAtID(ctx, o.server, http.MethodDelete, "/templates/%s", id, call{})
}

// CreatePool makes a pool of the server.
func (o *Operator) CreatePool(ctx context.Context, request wire.CreatePoolRequest) (wire.PoolResponse, error) {
	return sendJSON[wire.PoolResponse](ctx, o.server, http.MethodPost, "/pools", call{json: request})
}

// GetPool is a pool of the server.
func (o *Operator) GetPool(ctx context.Context, name string) (wire.PoolResponse, error) {
	return atID[wire.PoolResponse](ctx, o.server, http.MethodGet, "/pools/%s", name, call{})
}

// ListPools are the pools of the server.
func (o *Operator) ListPools(ctx context.Context) (wire.ListPoolsResponse, error) {
	return sendJSON[wire.ListPoolsResponse](ctx, o.server, http.MethodGet, "/pools", call{})
}

// UpdatePool changes a pool of the server.
func (o *Operator) UpdatePool(ctx context.Context, name string, request wire.UpdatePoolRequest) (wire.PoolResponse, error) {
	return atID[wire.PoolResponse](ctx, o.server, http.MethodPut, "/pools/%s", name, call{json: request})
}

// DeletePool removes a pool of the server.
func (o *Operator) DeletePool(ctx context.Context, name string) error {
	return doneAtID(ctx, o.server, http.MethodDelete, "/pools/%s", name, call{})
}

const policyPath = "/sandboxes/%s/networkpolicy"

// NetworkPolicy is what a sandbox may reach, by the control plane; [Egress] asks the sandbox.
func (o *Operator) NetworkPolicy(ctx context.Context, id string) (wire.PolicyStatusResponse, error) {
	return atID[wire.PolicyStatusResponse](ctx, o.server, http.MethodGet, policyPath, id, call{})
}

// SetNetworkPolicy replaces what a sandbox may reach.
func (o *Operator) SetNetworkPolicy(ctx context.Context, id string, policy wire.NetworkPolicy) (wire.PolicyStatusResponse, error) {
	return atID[wire.PolicyStatusResponse](ctx, o.server, http.MethodPut, policyPath, id, call{json: policy})
}

// PatchNetworkPolicy puts rules before the others.
func (o *Operator) PatchNetworkPolicy(ctx context.Context, id string, rules []wire.NetworkRule) (wire.PolicyStatusResponse, error) {
	return atID[wire.PolicyStatusResponse](ctx, o.server, http.MethodPatch, policyPath, id, call{json: rules})
}

// DeleteNetworkPolicy removes the rules of these targets.
func (o *Operator) DeleteNetworkPolicy(ctx context.Context, id string, targets []string) (wire.PolicyStatusResponse, error) {
	return atID[wire.PolicyStatusResponse](ctx, o.server, http.MethodDelete, policyPath, id, call{json: targets})
}

// DiagnosticLogs are logs of a sandbox for whoever looks for what went wrong; "container" and "all" are scopes.
func (o *Operator) DiagnosticLogs(ctx context.Context, id, scope string) (wire.DiagnosticContentResponse, error) {
	asked := call{query: queryOf("scope", scope)}
	return atID[wire.DiagnosticContentResponse](ctx, o.server, http.MethodGet, "/sandboxes/%s/diagnostics/logs", id, asked)
}

// DiagnosticEvents are what happened to a sandbox; "runtime" and "all" are scopes.
func (o *Operator) DiagnosticEvents(ctx context.Context, id, scope string) (wire.DiagnosticContentResponse, error) {
	asked := call{query: queryOf("scope", scope)}
	return atID[wire.DiagnosticContentResponse](ctx, o.server, http.MethodGet, "/sandboxes/%s/diagnostics/events", id, asked)
}

// DiagnosticsText are the older diagnostics, as text; logs, events, inspect and summary are kinds.
func (o *Operator) DiagnosticsText(ctx context.Context, id, kind string, parameters map[string]string) (string, error) {
	path, err := pathOf("/sandboxes/%s/diagnostics/%s", id, kind)
	if err != nil {
		return "", err
	}
	var query strings.Builder
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		addPair(&query, name, parameters[name])
	}
	return o.server.text(ctx, http.MethodGet, path, call{query: query.String()})
}

// AuditEvents are who changed what, newest first (extension).
func (o *Operator) AuditEvents(ctx context.Context, filter *AuditFilter) (wire.ListAuditEventsResponse, error) {
	var query string
	if filter != nil {
		query = queryOf("resource", filter.Resource, "actor", filter.Actor, "before", number(filter.Before), "limit", number(filter.Limit))
	}
	return sendJSON[wire.ListAuditEventsResponse](ctx, o.server, http.MethodGet, "/audit-events", call{query: query})
}

// MetricsText are the server's own metrics, as Prometheus reads them.
func (o *Operator) MetricsText(ctx context.Context) (string, error) {
	return o.root.text(ctx, http.MethodGet, "/metrics", call{})
}

// OpenAPI is the server's API document.
func (o *Operator) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return sendJSON[json.RawMessage](ctx, o.root, http.MethodGet, "/openapi.json", call{})
}

// ReportEvent tells the server how a client fared, as the published clients do.
func (o *Operator) ReportEvent(ctx context.Context, event wire.MetricsEvent) error {
	return o.server.done(ctx, http.MethodPost, "/metrics/events", call{json: event})
}
