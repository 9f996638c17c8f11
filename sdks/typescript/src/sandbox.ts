// One sandbox, and everything that is reached from it.

import { Client } from "./client.ts";
import { Code } from "./code.ts";
import { Commands } from "./commands.ts";
import { connectSandbox, type ConnectOptions } from "./connect.ts";
import { createSandbox, type CreateOptions, type SandboxSource } from "./create.ts";
import { CredentialVault, Egress } from "./egress.ts";
import { OpenSandboxError } from "./errors.ts";
import { Files } from "./files.ts";
import { Terminals } from "./pty.ts";
import { Sessions } from "./sessions.ts";
import { ValueStream } from "./streams.ts";
import { type Abortable, API_KEY_HEADER, Target } from "./transport.ts";
import { openTunnel, type Tunnel } from "./tunnel.ts";
import type { WaitOptions } from "./client.ts";
import type {
  DiagnosticContentResponse,
  Endpoint,
  IsolatedCapabilities,
  Metrics as WireMetrics,
  SandboxInfo,
  SandboxState,
  Snapshot,
} from "./wire.ts";

/** Where the daemon in every sandbox listens. */
const EXEC_PORT = 44772;

/** Where the egress API of a sandbox is asked for. */
const EGRESS_PORT = 18080;

/** What a sandbox uses. */
export interface Metrics {
  /** Processors it may use. */
  cpuCount: number;
  /** How much of them it used since the last sample, from 0 to 100. */
  cpuUsedPercent: number;
  /** Memory it may use. */
  memoryTotalMiB: number;
  /** How much of it is in use. */
  memoryUsedMiB: number;
  at: Date;
}

/**
 * A sandbox. One that was made here ends when its `await using` block is left, unless it is kept;
 * one that was connected to does not. Without such a block, {@link Sandbox.kill} ends it, or the end
 * of its time.
 *
 * ```ts
 * await using sandbox = await Sandbox.create("python:3.12", { env: { GREETING: "hello" } });
 * const output = await sandbox.commands.run("echo $GREETING from $(hostname)");
 * console.log(output.stdout);
 * ```
 */
export class Sandbox {
  /** Its id. */
  readonly id: string;
  /** The client it is reached by. */
  readonly client: Client;
  /** Runs commands. */
  readonly commands: Commands;
  /** Live shells. */
  readonly sessions: Sessions;
  /** Terminals. */
  readonly terminals: Terminals;
  /** Files and directories. */
  readonly files: Files;
  /** Code that remembers. */
  readonly code: Code;
  /** What it may reach. */
  readonly egress: Egress;
  /** Credentials that are put into its requests on the way out. */
  readonly credentialVault: CredentialVault;
  /** Where the daemon and the egress API are, once asked for. */
  readonly #targets = new Map<number, Target>();
  #isOwned: boolean;

  /** @internal */
  constructor(client: Client, id: string, isOwned = false) {
    this.client = client;
    this.id = id;
    this.#isOwned = isOwned;
    this.commands = new Commands(this);
    this.sessions = new Sessions(this);
    this.terminals = new Terminals(this);
    this.files = new Files(this);
    this.code = new Code(this);
    this.egress = new Egress(this);
    this.credentialVault = new CredentialVault(this);
  }

  /** Makes a sandbox from an image, a snapshot or a template. */
  static async create(source: SandboxSource, options: CreateOptions = {}): Promise<Sandbox> {
    return createSandbox(options.client ?? new Client(options.connection), source, options);
  }

  /** Connects to a sandbox that exists. */
  static async connect(id: string, options: ConnectOptions = {}): Promise<Sandbox> {
    return connectSandbox(options.client ?? new Client(options.connection), id, options);
  }

  /** What the server knows of it. */
  async info(options: Abortable = {}): Promise<SandboxInfo> {
    return this.client.get(this.id, options);
  }

  /** What it uses now. */
  async metrics(options: Abortable = {}): Promise<Metrics> {
    return metricsOf(await (await this.exec(options.signal)).json("GET", "/metrics", options));
  }

  /** What it uses, each second. */
  async watchMetrics(options: Abortable = {}): Promise<ValueStream<Metrics>> {
    const exec = await this.exec(options.signal);
    return new ValueStream(await exec.send("GET", "/metrics/watch", options), "metrics", metricsOf);
  }

  /** Whether the daemon in it answers. */
  async isHealthy(options: Abortable = {}): Promise<boolean> {
    try {
      await this.ping(options);
      return true;
    } catch (error) {
      if (error instanceof OpenSandboxError) return false;
      throw error;
    }
  }

  /** Asks the daemon in it whether it is up. */
  async ping(options: Abortable = {}): Promise<void> {
    await (await this.exec(options.signal)).done("GET", "/ping", options);
  }

  /** Where one of its ports is reached from outside; with `expires` as a link that lets anyone in until then. */
  async endpoint(port: number, options: Abortable & { expires?: Date | undefined } = {}): Promise<Endpoint> {
    return this.client.endpoint(this.id, port, options);
  }

  /** The URL of one of its ports, and the headers to send. */
  async url(port: number, options: Abortable = {}): Promise<{ url: string; headers: Record<string, string> }> {
    const { base, headers } = await this.#target(port, options.signal);
    return { url: base, headers: { ...headers } };
  }

  /** A link to one of its ports that lets anyone in until it expires. The server must have a key to sign with. */
  async previewUrl(port: number, expires: Date, options: Abortable = {}): Promise<string> {
    return this.#urlOf(await this.endpoint(port, { ...options, expires }));
  }

  /**
   * Extension: a link by which a browser reaches one of its ports, good for once. The browser is let in until
   * then, or for as long as the server says. Needs a server with an ingress gateway.
   */
  async link(port: number, options: Abortable & { until?: Date | undefined } = {}): Promise<string> {
    return this.client.link(this.id, port, options);
  }

  /** A request to one of its ports. */
  async fetch(port: number, path: string, init: RequestInit = {}): Promise<Response> {
    const { url, headers } = await this.url(port, { signal: init.signal ?? undefined });
    const all = new Headers(init.headers);
    for (const [name, value] of Object.entries(headers)) all.set(name, value);
    return this.client.config.fetch(`${url}/${path.replace(/^\/+/, "")}`, { ...init, headers: all });
  }

  /** Extension: a plain byte stream to one of its ports, for whatever does not speak HTTP. Not in browsers. */
  async tunnel(port: number, options: Abortable = {}): Promise<Tunnel> {
    return openTunnel(await this.#target(port, options.signal), options.signal);
  }

  /** Lets it live this much longer, from now; answers when it ends. */
  async renew(lifetimeSeconds: number, options: Abortable = {}): Promise<Date> {
    return this.client.renew(this.id, lifetimeSeconds, options);
  }

  /** Sets labels, and removes those that are `null`. */
  async patchMetadata(patch: Record<string, string | null>, options: Abortable = {}): Promise<SandboxInfo> {
    return this.client.patchMetadata(this.id, patch, options);
  }

  /** Freezes it; answers when it is frozen. */
  async pause(options: WaitOptions = {}): Promise<void> {
    await this.client.pause(this.id, options);
  }

  /** Lets it run on; answers when it runs. */
  async resume(options: WaitOptions = {}): Promise<void> {
    // It may come back at another address.
    this.#targets.clear();
    await this.client.resume(this.id, options);
  }

  /** Waits until it is in this state; fails when it gets into one from which it never comes. */
  async waitForState(state: SandboxState, options: WaitOptions = {}): Promise<void> {
    await this.client.waitForState(this.id, state, options);
  }

  /** Keeps a copy of its filesystem; answers when sandboxes can be made from it. */
  async snapshot(options: WaitOptions & { name?: string } = {}): Promise<Snapshot> {
    const begun = await this.client.createSnapshot(this.id, options);
    return this.client.waitForSnapshot(begun.id, options);
  }

  /** Its logs for whoever looks for what went wrong; `container` and `all` are scopes. */
  async diagnosticLogs(scope: string, options: Abortable = {}): Promise<DiagnosticContentResponse> {
    return this.client.operator.diagnosticLogs(this.id, scope, options);
  }

  /** What happened to it; `runtime` and `all` are scopes. */
  async diagnosticEvents(scope: string, options: Abortable = {}): Promise<DiagnosticContentResponse> {
    return this.client.operator.diagnosticEvents(this.id, scope, options);
  }

  /** Which isolation its daemon has for sessions of their own. */
  async isolatedCapabilities(options: Abortable = {}): Promise<IsolatedCapabilities> {
    return (await this.exec(options.signal)).json("GET", "/v1/isolated/capabilities", options);
  }

  /** Ends it. One that is already gone is no error. */
  async kill(options: Abortable = {}): Promise<void> {
    try {
      await this.client.kill(this.id, options);
    } catch (error) {
      if (!(error instanceof OpenSandboxError && error.isNotFound)) throw error;
    }
  }

  /** Lets it outlive its `await using` block. */
  keep(): this {
    this.#isOwned = false;
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isOwned) await this.kill();
  }

  /** @internal The daemon inside. */
  async exec(signal?: AbortSignal): Promise<Target> {
    return this.#targets.get(EXEC_PORT) ?? this.#kept(EXEC_PORT, signal);
  }

  /** @internal The daemon inside, at an address that needs no header. */
  async signedExec(expires: Date, signal?: AbortSignal): Promise<Target> {
    const endpoint = await this.endpoint(EXEC_PORT, { expires, signal });
    return new Target(this.client.config, this.#urlOf(endpoint), {});
  }

  /** @internal The egress API. */
  async egressApi(signal?: AbortSignal): Promise<Target> {
    return this.#targets.get(EGRESS_PORT) ?? this.#kept(EGRESS_PORT, signal);
  }

  /** @internal One of its ports. */
  async port(port: number, signal?: AbortSignal): Promise<Target> {
    return this.#target(port, signal);
  }

  async #kept(port: number, signal: AbortSignal | undefined): Promise<Target> {
    const target = await this.#target(port, signal);
    this.#targets.set(port, target);
    return target;
  }

  async #target(port: number, signal: AbortSignal | undefined): Promise<Target> {
    const endpoint = await this.endpoint(port, { signal });
    const { apiKey, useServerProxy } = this.client.config;
    const headers: Record<string, string> = {};
    // Only the server may see the key; a sandbox never does.
    if (apiKey !== undefined && useServerProxy) headers[API_KEY_HEADER] = apiKey;
    return new Target(this.client.config, this.#urlOf(endpoint), { ...headers, ...endpoint.headers });
  }

  #urlOf(endpoint: Endpoint): string {
    const address = endpoint.endpoint.replace(/\/+$/, "");
    return address.includes("://") ? address : `${this.client.config.scheme}://${address}`;
  }
}

function metricsOf(metrics: WireMetrics): Metrics {
  return {
    cpuCount: metrics.cpu_count,
    cpuUsedPercent: metrics.cpu_used_pct,
    memoryTotalMiB: metrics.mem_total_mib,
    memoryUsedMiB: metrics.mem_used_mib,
    at: new Date(metrics.timestamp),
  };
}
