package dev.osb.kotlin

import dev.osb.AuditFilter
import dev.osb.wire.CreatePoolRequest
import dev.osb.wire.CreateTemplateRequest
import dev.osb.wire.DiagnosticContentResponse
import dev.osb.wire.ListAuditEventsResponse
import dev.osb.wire.ListPoolsResponse
import dev.osb.wire.ListTemplatesResponse
import dev.osb.wire.MetricsEvent
import dev.osb.wire.NetworkPolicy
import dev.osb.wire.NetworkRule
import dev.osb.wire.PolicyStatusResponse
import dev.osb.wire.PoolResponse
import dev.osb.wire.Template
import dev.osb.wire.UpdatePoolRequest
import kotlinx.coroutines.future.await

/** What those who run a server ask for: templates, its pools, policies by the control plane, diagnostics, the audit record. */
public class Operator internal constructor(private val java: dev.osb.Operator) {
    /** Begins to build a template. */
    public suspend fun createTemplate(request: CreateTemplateRequest): Template = java.createTemplateAsync(request).await()

    /** A template. */
    public suspend fun getTemplate(id: String): Template = java.getTemplateAsync(id).await()

    /** One page of templates: those with these labels, which page, from 1, and how many are on one; null is as the server likes. */
    public suspend fun listTemplates(metadata: Map<String, String>, page: Int? = null, pageSize: Int? = null): ListTemplatesResponse = java.listTemplatesAsync(metadata, page, pageSize).await()

    /** Removes a template. */
    public suspend fun deleteTemplate(id: String) {
        java.deleteTemplateAsync(id).await()
    }

    /** Makes a pool of the server. */
    public suspend fun createPool(request: CreatePoolRequest): PoolResponse = java.createPoolAsync(request).await()

    /** A pool of the server. */
    public suspend fun getPool(name: String): PoolResponse = java.getPoolAsync(name).await()

    /** The pools of the server. */
    public suspend fun listPools(): ListPoolsResponse = java.listPoolsAsync().await()

    /** Changes a pool of the server. */
    public suspend fun updatePool(name: String, request: UpdatePoolRequest): PoolResponse = java.updatePoolAsync(name, request).await()

    /** Removes a pool of the server. */
    public suspend fun deletePool(name: String) {
        java.deletePoolAsync(name).await()
    }

    /** What a sandbox may reach, by the control plane; [Sandbox.egress] asks the sandbox. */
    public suspend fun networkPolicy(id: String): PolicyStatusResponse = java.networkPolicyAsync(id).await()

    /** Replaces what a sandbox may reach. */
    public suspend fun setNetworkPolicy(id: String, policy: NetworkPolicy): PolicyStatusResponse = java.setNetworkPolicyAsync(id, policy).await()

    /** Puts rules before the others. */
    public suspend fun patchNetworkPolicy(id: String, rules: List<NetworkRule>): PolicyStatusResponse = java.patchNetworkPolicyAsync(id, rules).await()

    /** Removes the rules of these targets. */
    public suspend fun deleteNetworkPolicy(id: String, targets: List<String>): PolicyStatusResponse = java.deleteNetworkPolicyAsync(id, targets).await()

    /** Logs of a sandbox for whoever looks for what went wrong; `container` and `all` are scopes. */
    public suspend fun diagnosticLogs(id: String, scope: String): DiagnosticContentResponse = java.diagnosticLogsAsync(id, scope).await()

    /** What happened to a sandbox; `runtime` and `all` are scopes. */
    public suspend fun diagnosticEvents(id: String, scope: String): DiagnosticContentResponse = java.diagnosticEventsAsync(id, scope).await()

    /** The older diagnostics, as text: `logs`, `events`, `inspect` or `summary`, with the parameters of each. */
    public suspend fun diagnosticsText(id: String, kind: String, parameters: Map<String, String>): String = java.diagnosticsTextAsync(id, kind, parameters).await()

    /** Extension: who changed what, newest first. */
    public suspend fun auditEvents(filter: AuditFilter): ListAuditEventsResponse = java.auditEventsAsync(filter).await()

    /** The server's own metrics, as Prometheus reads them. */
    public suspend fun metricsText(): String = java.metricsTextAsync().await()

    /** The server's API document, as `Json.parse` gives it. */
    public suspend fun openapi(): Any = java.openapiAsync().await()

    /** Tells the server how a client fared, as the published clients do. */
    public suspend fun reportEvent(event: MetricsEvent) {
        java.reportEventAsync(event).await()
    }
}
