// What those who run a server ask for: templates, its pools, policies by the control plane, diagnostics, the
// audit record, its own metrics and API document.

using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using OpenSandbox.Wire;

namespace OpenSandbox
{
    /// <summary>Which changes of the audit record.</summary>
    public sealed class AuditFilter
    {
        /// <summary>Only about this sandbox or snapshot.</summary>
        public string? Resource { get; set; }

        /// <summary>Only by this actor.</summary>
        public string? Actor { get; set; }

        /// <summary>Only those older than this one.</summary>
        public long? Before { get; set; }

        /// <summary>At most this many.</summary>
        public int? Limit { get; set; }
    }

    /// <summary>Which templates.</summary>
    public sealed class TemplateFilter
    {
        /// <summary>Only those with all of these labels.</summary>
        public IReadOnlyDictionary<string, string>? Metadata { get; set; }

        /// <summary>Which page, from 1.</summary>
        public int? Page { get; set; }

        /// <summary>Items per page.</summary>
        public int? PageSize { get; set; }
    }

    /// <summary>What those who run a server ask for.</summary>
    public sealed class Operator
    {
        private readonly Target _server;
        private readonly Target _root;

        internal Operator(Target server, Target root)
        {
            _server = server;
            _root = root;
        }

        /// <summary>Begins to build a template.</summary>
        /// <param name="request">Of what.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Template> CreateTemplateAsync(CreateTemplateRequest request, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<Template>("POST", "/templates", new Call { Json = request }, cancellationToken);

        /// <summary>A template.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<Template> GetTemplateAsync(string id, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<Template>("GET", $"/templates/{Encoded.Segment(id)}", null, cancellationToken);

        /// <summary>One page of templates.</summary>
        /// <param name="filter">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListTemplatesResponse> ListTemplatesAsync(TemplateFilter? filter = null, CancellationToken cancellationToken = default)
        {
            filter ??= new TemplateFilter();
            var query = Encoded.Query(("page", filter.Page), ("pageSize", filter.PageSize), ("metadata", Labels(filter.Metadata)));
            return _server.JsonAsync<ListTemplatesResponse>("GET", "/templates", new Call { Query = query }, cancellationToken);
        }

        /// <summary>Removes a template.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task DeleteTemplateAsync(string id, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("DELETE", $"/templates/{Encoded.Segment(id)}", null, cancellationToken);

        /// <summary>Makes a pool of the server.</summary>
        /// <param name="request">Of what.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PoolResponse> CreatePoolAsync(CreatePoolRequest request, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<PoolResponse>("POST", "/pools", new Call { Json = request }, cancellationToken);

        /// <summary>A pool of the server.</summary>
        /// <param name="name">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PoolResponse> GetPoolAsync(string name, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<PoolResponse>("GET", $"/pools/{Encoded.Segment(name)}", null, cancellationToken);

        /// <summary>The pools of the server.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListPoolsResponse> ListPoolsAsync(CancellationToken cancellationToken = default) =>
            _server.JsonAsync<ListPoolsResponse>("GET", "/pools", null, cancellationToken);

        /// <summary>Changes a pool of the server.</summary>
        /// <param name="name">Which.</param>
        /// <param name="request">To what.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PoolResponse> UpdatePoolAsync(string name, UpdatePoolRequest request, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<PoolResponse>("PUT", $"/pools/{Encoded.Segment(name)}", new Call { Json = request }, cancellationToken);

        /// <summary>Removes a pool of the server.</summary>
        /// <param name="name">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task DeletePoolAsync(string name, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("DELETE", $"/pools/{Encoded.Segment(name)}", null, cancellationToken);

        /// <summary>What a sandbox may reach, by the control plane; <see cref="Sandbox.Egress"/> asks the sandbox.</summary>
        /// <param name="id">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> NetworkPolicyAsync(string id, CancellationToken cancellationToken = default) =>
            PolicyAsync("GET", id, null, cancellationToken);

        /// <summary>Replaces what a sandbox may reach.</summary>
        /// <param name="id">Which.</param>
        /// <param name="policy">The new policy.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> SetNetworkPolicyAsync(string id, NetworkPolicy policy, CancellationToken cancellationToken = default) =>
            PolicyAsync("PUT", id, policy, cancellationToken);

        /// <summary>Puts rules before the others.</summary>
        /// <param name="id">Of which sandbox.</param>
        /// <param name="rules">The rules.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> PatchNetworkPolicyAsync(
            string id, IEnumerable<NetworkRule> rules, CancellationToken cancellationToken = default) =>
            PolicyAsync("PATCH", id, rules.ToArray(), cancellationToken);

        /// <summary>Removes the rules of these targets.</summary>
        /// <param name="id">Of which sandbox.</param>
        /// <param name="targets">The targets.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<PolicyStatusResponse> DeleteNetworkPolicyAsync(
            string id, IEnumerable<string> targets, CancellationToken cancellationToken = default) =>
            PolicyAsync("DELETE", id, targets.ToArray(), cancellationToken);

        /// <summary>Logs of a sandbox for whoever looks for what went wrong.</summary>
        /// <param name="id">Which.</param>
        /// <param name="scope"><c>container</c> or <c>all</c>.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<DiagnosticContentResponse> DiagnosticLogsAsync(string id, string scope, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<DiagnosticContentResponse>(
                "GET", Client.PathOf(id, "/diagnostics/logs"), new Call { Query = Encoded.Query(("scope", scope)) }, cancellationToken);

        /// <summary>What happened to a sandbox.</summary>
        /// <param name="id">Which.</param>
        /// <param name="scope"><c>runtime</c> or <c>all</c>.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<DiagnosticContentResponse> DiagnosticEventsAsync(string id, string scope, CancellationToken cancellationToken = default) =>
            _server.JsonAsync<DiagnosticContentResponse>(
                "GET", Client.PathOf(id, "/diagnostics/events"), new Call { Query = Encoded.Query(("scope", scope)) }, cancellationToken);

        /// <summary>The older diagnostics, as text.</summary>
        /// <param name="id">Of which sandbox.</param>
        /// <param name="kind"><c>logs</c>, <c>events</c>, <c>inspect</c> or <c>summary</c>.</param>
        /// <param name="parameters">What the kind takes, by name.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<string> DiagnosticsTextAsync(
            string id, string kind, IReadOnlyDictionary<string, string>? parameters = null, CancellationToken cancellationToken = default)
        {
            var call = new Call { Query = Pairs(parameters) };
            return _server.TextAsync("GET", Client.PathOf(id, $"/diagnostics/{Encoded.Segment(kind)}"), call, cancellationToken);
        }

        /// <summary>Extension: who changed what, newest first.</summary>
        /// <param name="filter">Which.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<ListAuditEventsResponse> AuditEventsAsync(AuditFilter? filter = null, CancellationToken cancellationToken = default)
        {
            filter ??= new AuditFilter();
            var query = Encoded.Query(
                ("resource", filter.Resource), ("actor", filter.Actor), ("before", filter.Before), ("limit", filter.Limit));
            return _server.JsonAsync<ListAuditEventsResponse>("GET", "/audit-events", new Call { Query = query }, cancellationToken);
        }

        /// <summary>The server's own metrics, as Prometheus reads them.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<string> MetricsTextAsync(CancellationToken cancellationToken = default) =>
            _root.TextAsync("GET", "/metrics", null, cancellationToken);

        /// <summary>The server's API document.</summary>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task<JsonElement> OpenApiAsync(CancellationToken cancellationToken = default) =>
            _root.JsonAsync<JsonElement>("GET", "/openapi.json", null, cancellationToken);

        /// <summary>Tells the server how a client fared, as the published clients do.</summary>
        /// <param name="report">How.</param>
        /// <param name="cancellationToken">Ends the call early.</param>
        public Task ReportEventAsync(MetricsEvent report, CancellationToken cancellationToken = default) =>
            _server.DoneAsync("POST", "/metrics/events", new Call { Json = report }, cancellationToken);

        /// <summary>Labels as a query inside the query: their names and values are encoded once more.</summary>
        internal static string? Labels(IReadOnlyDictionary<string, string>? labels) =>
            labels == null || labels.Count == 0 ? null : Pairs(labels);

        private static string Pairs(IReadOnlyDictionary<string, string>? pairs) =>
            pairs == null ? "" : Encoded.Query(pairs.Select(pair => (pair.Key, (object?)pair.Value)));

        private Task<PolicyStatusResponse> PolicyAsync(string method, string id, object? json, CancellationToken token) =>
            _server.JsonAsync<PolicyStatusResponse>(method, Client.PathOf(id, "/networkpolicy"), new Call { Json = json }, token);
    }
}
