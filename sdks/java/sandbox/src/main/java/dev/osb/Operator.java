package dev.osb;

import static dev.osb.Task.await;

import dev.osb.wire.CreatePoolRequest;
import dev.osb.wire.CreateTemplateRequest;
import dev.osb.wire.DiagnosticContentResponse;
import dev.osb.wire.ListAuditEventsResponse;
import dev.osb.wire.ListPoolsResponse;
import dev.osb.wire.ListTemplatesResponse;
import dev.osb.wire.MetricsEvent;
import dev.osb.wire.NetworkPolicy;
import dev.osb.wire.NetworkRule;
import dev.osb.wire.PolicyStatusResponse;
import dev.osb.wire.PoolResponse;
import dev.osb.wire.Template;
import dev.osb.wire.UpdatePoolRequest;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * What those who run a server ask for: templates, its pools, policies by the control plane, diagnostics, the audit record,
 * its own metrics and API document.
 */
public final class Operator {
    private final Target server;
    private final Target root;

    Operator(Target server, Target root) {
        this.server = server;
        this.root = root;
    }

    /** Begins to build a template. */
    public Template createTemplate(CreateTemplateRequest request) {
        return await(createTemplateAsync(request));
    }

    /** {@link #createTemplate} without blocking. */
    public CompletableFuture<Template> createTemplateAsync(CreateTemplateRequest request) {
        return server.json(Call.post("/templates").json(request), Template::fromJson);
    }

    /** A template. */
    public Template getTemplate(String id) {
        return await(getTemplateAsync(id));
    }

    /** {@link #getTemplate} without blocking. */
    public CompletableFuture<Template> getTemplateAsync(String id) {
        return server.json(Call.get("/templates/" + Text.segment(id)), Template::fromJson);
    }

    /** One page of templates: those with these labels, which page, from 1, and how many are on one; null is as the server likes. */
    public ListTemplatesResponse listTemplates(Map<String, String> metadata, Integer page, Integer pageSize) {
        return await(listTemplatesAsync(metadata, page, pageSize));
    }

    /** {@link #listTemplates} without blocking. */
    public CompletableFuture<ListTemplatesResponse> listTemplatesAsync(Map<String, String> metadata, Integer page, Integer pageSize) {
        return server.json(Call.get("/templates").query("page", page, "pageSize", pageSize, "metadata", SandboxFilter.labels(metadata)), ListTemplatesResponse::fromJson);
    }

    /** Removes a template. */
    public void deleteTemplate(String id) {
        await(deleteTemplateAsync(id));
    }

    /** {@link #deleteTemplate} without blocking. */
    public CompletableFuture<Void> deleteTemplateAsync(String id) {
        return server.done(Call.delete("/templates/" + Text.segment(id)));
    }

    /** Makes a pool of the server. */
    public PoolResponse createPool(CreatePoolRequest request) {
        return await(createPoolAsync(request));
    }

    /** {@link #createPool} without blocking. */
    public CompletableFuture<PoolResponse> createPoolAsync(CreatePoolRequest request) {
        return server.json(Call.post("/pools").json(request), PoolResponse::fromJson);
    }

    /** A pool of the server. */
    public PoolResponse getPool(String name) {
        return await(getPoolAsync(name));
    }

    /** {@link #getPool} without blocking. */
    public CompletableFuture<PoolResponse> getPoolAsync(String name) {
        return server.json(Call.get("/pools/" + Text.segment(name)), PoolResponse::fromJson);
    }

    /** The pools of the server. */
    public ListPoolsResponse listPools() {
        return await(listPoolsAsync());
    }

    /** {@link #listPools} without blocking. */
    public CompletableFuture<ListPoolsResponse> listPoolsAsync() {
        return server.json(Call.get("/pools"), ListPoolsResponse::fromJson);
    }

    /** Changes a pool of the server. */
    public PoolResponse updatePool(String name, UpdatePoolRequest request) {
        return await(updatePoolAsync(name, request));
    }

    /** {@link #updatePool} without blocking. */
    public CompletableFuture<PoolResponse> updatePoolAsync(String name, UpdatePoolRequest request) {
        return server.json(Call.put("/pools/" + Text.segment(name)).json(request), PoolResponse::fromJson);
    }

    /** Removes a pool of the server. */
    public void deletePool(String name) {
        await(deletePoolAsync(name));
    }

    /** {@link #deletePool} without blocking. */
    public CompletableFuture<Void> deletePoolAsync(String name) {
        return server.done(Call.delete("/pools/" + Text.segment(name)));
    }

    /** What a sandbox may reach, by the control plane; {@link Sandbox#egress} asks the sandbox. */
    public PolicyStatusResponse networkPolicy(String id) {
        return await(networkPolicyAsync(id));
    }

    /** {@link #networkPolicy} without blocking. */
    public CompletableFuture<PolicyStatusResponse> networkPolicyAsync(String id) {
        return server.json(Call.get(policyPath(id)), PolicyStatusResponse::fromJson);
    }

    /** Replaces what a sandbox may reach. */
    public PolicyStatusResponse setNetworkPolicy(String id, NetworkPolicy policy) {
        return await(setNetworkPolicyAsync(id, policy));
    }

    /** {@link #setNetworkPolicy} without blocking. */
    public CompletableFuture<PolicyStatusResponse> setNetworkPolicyAsync(String id, NetworkPolicy policy) {
        return server.json(Call.put(policyPath(id)).json(policy), PolicyStatusResponse::fromJson);
    }

    /** Puts rules before the others. */
    public PolicyStatusResponse patchNetworkPolicy(String id, List<NetworkRule> rules) {
        return await(patchNetworkPolicyAsync(id, rules));
    }

    /** {@link #patchNetworkPolicy} without blocking. */
    public CompletableFuture<PolicyStatusResponse> patchNetworkPolicyAsync(String id, List<NetworkRule> rules) {
        return server.json(Call.patch(policyPath(id)).json(rules), PolicyStatusResponse::fromJson);
    }

    /** Removes the rules of these targets. */
    public PolicyStatusResponse deleteNetworkPolicy(String id, List<String> targets) {
        return await(deleteNetworkPolicyAsync(id, targets));
    }

    /** {@link #deleteNetworkPolicy} without blocking. */
    public CompletableFuture<PolicyStatusResponse> deleteNetworkPolicyAsync(String id, List<String> targets) {
        return server.json(Call.delete(policyPath(id)).json(targets), PolicyStatusResponse::fromJson);
    }

    /** Logs of a sandbox for whoever looks for what went wrong; {@code container} and {@code all} are scopes. */
    public DiagnosticContentResponse diagnosticLogs(String id, String scope) {
        return await(diagnosticLogsAsync(id, scope));
    }

    /** {@link #diagnosticLogs} without blocking. */
    public CompletableFuture<DiagnosticContentResponse> diagnosticLogsAsync(String id, String scope) {
        return server.json(Call.get("/sandboxes/" + Text.segment(id) + "/diagnostics/logs").query("scope", scope), DiagnosticContentResponse::fromJson);
    }

    /** What happened to a sandbox; {@code runtime} and {@code all} are scopes. */
    public DiagnosticContentResponse diagnosticEvents(String id, String scope) {
        return await(diagnosticEventsAsync(id, scope));
    }

    /** {@link #diagnosticEvents} without blocking. */
    public CompletableFuture<DiagnosticContentResponse> diagnosticEventsAsync(String id, String scope) {
        return server.json(Call.get("/sandboxes/" + Text.segment(id) + "/diagnostics/events").query("scope", scope), DiagnosticContentResponse::fromJson);
    }

    /** The older diagnostics, as text: {@code logs}, {@code events}, {@code inspect} or {@code summary}, with the parameters of each. */
    public String diagnosticsText(String id, String kind, Map<String, String> parameters) {
        return await(diagnosticsTextAsync(id, kind, parameters));
    }

    /** {@link #diagnosticsText} without blocking. */
    public CompletableFuture<String> diagnosticsTextAsync(String id, String kind, Map<String, String> parameters) {
        return server.text(parameterised(Call.get("/sandboxes/" + Text.segment(id) + "/diagnostics/" + Text.segment(kind)), parameters));
    }

    /** Extension: who changed what, newest first. */
    public ListAuditEventsResponse auditEvents(AuditFilter filter) {
        return await(auditEventsAsync(filter));
    }

    /** {@link #auditEvents} without blocking. */
    public CompletableFuture<ListAuditEventsResponse> auditEventsAsync(AuditFilter filter) {
        return server.json(Call.get("/audit-events").query(
            "resource", filter.resource, "actor", filter.actor, "before", filter.before, "limit", filter.limit), ListAuditEventsResponse::fromJson);
    }

    /** The server's own metrics, as Prometheus reads them. */
    public String metricsText() {
        return await(metricsTextAsync());
    }

    /** {@link #metricsText} without blocking. */
    public CompletableFuture<String> metricsTextAsync() {
        return root.text(Call.get("/metrics"));
    }

    /** The server's API document, as {@link dev.osb.wire.Json#parse} gives it. */
    public Object openapi() {
        return await(openapiAsync());
    }

    /** {@link #openapi} without blocking. */
    public CompletableFuture<Object> openapiAsync() {
        return root.json(Call.get("/openapi.json"), json -> json);
    }

    /** Tells the server how a client fared, as the published clients do. */
    public void reportEvent(MetricsEvent event) {
        await(reportEventAsync(event));
    }

    /** {@link #reportEvent} without blocking. */
    public CompletableFuture<Void> reportEventAsync(MetricsEvent event) {
        return server.done(Call.post("/metrics/events").json(event));
    }

    private static String policyPath(String id) {
        return "/sandboxes/" + Text.segment(id) + "/networkpolicy";
    }

    private static Call parameterised(Call call, Map<String, String> parameters) {
        call.query = SandboxFilter.labels(parameters);
        return call;
    }
}
