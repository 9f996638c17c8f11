// What those who run a server ask for: templates, its pools, policies by the control plane,
// diagnostics, the audit record, its own metrics and API document.

import { type Abortable, query, segment, type Target } from "./transport.ts";
import type {
  CreatePoolRequest,
  CreateTemplateRequest,
  DiagnosticContentResponse,
  ListAuditEventsResponse,
  ListPoolsResponse,
  ListTemplatesResponse,
  MetricsEvent,
  NetworkPolicy,
  NetworkRule,
  PolicyStatusResponse,
  PoolResponse,
  Template,
  UpdatePoolRequest,
} from "./wire.ts";

/** Which changes of the audit record. */
export interface AuditFilter extends Abortable {
  /** Only about this sandbox or snapshot. */
  resource?: string | undefined;
  /** Only by this actor. */
  actor?: string | undefined;
  /** Only those older than this one. */
  before?: number | undefined;
  /** At most this many. */
  limit?: number | undefined;
}

/** Which templates. */
export interface TemplateFilter extends Abortable {
  metadata?: Record<string, string> | undefined;
  /** Which page, from 1. */
  page?: number | undefined;
  /** Items per page. */
  pageSize?: number | undefined;
}

/** What those who run a server ask for. */
export class Operator {
  readonly #server: Target;
  readonly #root: Target;

  /** @internal */
  constructor(server: Target, root: Target) {
    this.#server = server;
    this.#root = root;
  }

  /** Begins to build a template. */
  async createTemplate(request: CreateTemplateRequest, options: Abortable = {}): Promise<Template> {
    return this.#server.json("POST", "/templates", { ...options, json: request });
  }

  /** A template. */
  async getTemplate(id: string, options: Abortable = {}): Promise<Template> {
    return this.#server.json("GET", `/templates/${segment(id)}`, options);
  }

  /** One page of templates. */
  async listTemplates(filter: TemplateFilter = {}): Promise<ListTemplatesResponse> {
    const labels = Object.entries(filter.metadata ?? {});
    return this.#server.json("GET", "/templates", {
      query: query([
        ["page", filter.page],
        ["pageSize", filter.pageSize],
        ["metadata", labels.length === 0 ? undefined : query(labels)],
      ]),
      signal: filter.signal,
    });
  }

  /** Removes a template. */
  async deleteTemplate(id: string, options: Abortable = {}): Promise<void> {
    await this.#server.done("DELETE", `/templates/${segment(id)}`, options);
  }

  /** Makes a pool of the server. */
  async createPool(request: CreatePoolRequest, options: Abortable = {}): Promise<PoolResponse> {
    return this.#server.json("POST", "/pools", { ...options, json: request });
  }

  /** A pool of the server. */
  async getPool(name: string, options: Abortable = {}): Promise<PoolResponse> {
    return this.#server.json("GET", `/pools/${segment(name)}`, options);
  }

  /** The pools of the server. */
  async listPools(options: Abortable = {}): Promise<ListPoolsResponse> {
    return this.#server.json("GET", "/pools", options);
  }

  /** Changes a pool of the server. */
  async updatePool(name: string, request: UpdatePoolRequest, options: Abortable = {}): Promise<PoolResponse> {
    return this.#server.json("PUT", `/pools/${segment(name)}`, { ...options, json: request });
  }

  /** Removes a pool of the server. */
  async deletePool(name: string, options: Abortable = {}): Promise<void> {
    await this.#server.done("DELETE", `/pools/${segment(name)}`, options);
  }

  /** What a sandbox may reach, by the control plane; `sandbox.egress` asks the sandbox. */
  async networkPolicy(id: string, options: Abortable = {}): Promise<PolicyStatusResponse> {
    return this.#server.json("GET", policyPath(id), options);
  }

  /** Replaces what a sandbox may reach. */
  async setNetworkPolicy(id: string, policy: NetworkPolicy, options: Abortable = {}): Promise<PolicyStatusResponse> {
    return this.#server.json("PUT", policyPath(id), { ...options, json: policy });
  }

  /** Puts rules before the others. */
  async patchNetworkPolicy(id: string, rules: NetworkRule[], options: Abortable = {}): Promise<PolicyStatusResponse> {
    return this.#server.json("PATCH", policyPath(id), { ...options, json: rules });
  }

  /** Removes the rules of these targets. */
  async deleteNetworkPolicy(id: string, targets: string[], options: Abortable = {}): Promise<PolicyStatusResponse> {
    return this.#server.json("DELETE", policyPath(id), { ...options, json: targets });
  }

  /** Logs of a sandbox for whoever looks for what went wrong; `container` and `all` are scopes. */
  async diagnosticLogs(id: string, scope: string, options: Abortable = {}): Promise<DiagnosticContentResponse> {
    const call = { query: query([["scope", scope]]), signal: options.signal };
    return this.#server.json("GET", `/sandboxes/${segment(id)}/diagnostics/logs`, call);
  }

  /** What happened to a sandbox; `runtime` and `all` are scopes. */
  async diagnosticEvents(id: string, scope: string, options: Abortable = {}): Promise<DiagnosticContentResponse> {
    const call = { query: query([["scope", scope]]), signal: options.signal };
    return this.#server.json("GET", `/sandboxes/${segment(id)}/diagnostics/events`, call);
  }

  /** The older diagnostics, as text. */
  async diagnosticsText(
    id: string,
    kind: "logs" | "events" | "inspect" | "summary",
    parameters: Record<string, string | number> = {},
    options: Abortable = {},
  ): Promise<string> {
    const call = { query: query(Object.entries(parameters)), signal: options.signal };
    return this.#server.text("GET", `/sandboxes/${segment(id)}/diagnostics/${segment(kind)}`, call);
  }

  /** Extension: who changed what, newest first. */
  async auditEvents(filter: AuditFilter = {}): Promise<ListAuditEventsResponse> {
    const { resource, actor, before, limit, signal } = filter;
    const parameters = query([["resource", resource], ["actor", actor], ["before", before], ["limit", limit]]);
    return this.#server.json("GET", "/audit-events", { query: parameters, signal });
  }

  /** The server's own metrics, as Prometheus reads them. */
  async metricsText(options: Abortable = {}): Promise<string> {
    return this.#root.text("GET", "/metrics", options);
  }

  /** The server's API document. */
  async openapi(options: Abortable = {}): Promise<unknown> {
    return this.#root.json("GET", "/openapi.json", options);
  }

  /** Tells the server how a client fared, as the published clients do. */
  async reportEvent(event: MetricsEvent, options: Abortable = {}): Promise<void> {
    await this.#server.done("POST", "/metrics/events", { json: event, signal: options.signal });
  }
}

function policyPath(id: string): string {
  return `/sandboxes/${segment(id)}/networkpolicy`;
}
