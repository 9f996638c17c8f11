// The control plane: sandboxes by their ids, lists, snapshots, events. What is asked for less often,
// templates, pools of the server, policies and diagnostics, is in operator.ts.

import { ConnectionConfig, type ConnectionOptions } from "./config.ts";
import { connectSandbox, type ConnectOptions, READY_TIMEOUT_SECONDS } from "./connect.ts";
import { createSandbox, type CreateOptions, type SandboxSource } from "./create.ts";
import { FailedError, InvalidArgumentError } from "./errors.ts";
import { Operator } from "./operator.ts";
import { Sandbox } from "./sandbox.ts";
import { Images, Volumes } from "./inventory.ts";
import { Keys, Tenants } from "./access.ts";
import { ValueStream } from "./streams.ts";
import { type Abortable, API_KEY_HEADER, query, segment, Target } from "./transport.ts";
import { until } from "./wait.ts";
import type {
  CreateSandboxRequest,
  CreateSandboxResponse,
  Endpoint,
  HealthResponse,
  LifecycleEvent,
  ListSandboxesResponse,
  ListSnapshotsResponse,
  LogEvent,
  RenewSandboxExpirationResponse,
  SandboxInfo,
  SandboxState,
  Snapshot,
  SnapshotState,
  VersionResponse,
} from "./wire.ts";

/** How long pausing, resuming and snapshots may take before waiting for them ends. */
const CHANGE_TIMEOUT_SECONDS = 300;

/** Which sandboxes. */
export interface SandboxFilter extends Abortable {
  /** Only sandboxes in one of these states; none is all. */
  states?: SandboxState[] | undefined;
  /** Only sandboxes with all of these labels. */
  metadata?: Record<string, string> | undefined;
  /** Which page, from 1. */
  page?: number | undefined;
  /** Items per page, at most 200. */
  pageSize?: number | undefined;
}

/** Which snapshots. */
export interface SnapshotFilter extends Abortable {
  /** Only snapshots of this sandbox. */
  sandboxId?: string | undefined;
  /** Only snapshots with this name. */
  name?: string | undefined;
  /** Only snapshots in one of these states; none is all. */
  states?: SnapshotState[] | undefined;
  /** Which page, from 1. */
  page?: number | undefined;
  /** Items per page, at most 200. */
  pageSize?: number | undefined;
}

/** How long to wait for a change. */
export interface WaitOptions extends Abortable {
  timeoutSeconds?: number | undefined;
}

/**
 * The control plane.
 *
 * ```ts
 * const client = new Client({ domain: "localhost:8080", apiKey: "secret" });
 * for await (const sandbox of client.list()) console.log(sandbox.id, sandbox.status.state);
 * ```
 */
export class Client {
  /** Its settings. */
  readonly config: ConnectionConfig;
  /** Extension: the images that the server keeps. */
  readonly images: Images;
  /** Extension: the API keys of the server. */
  readonly keys: Keys;
  /** Extension: the tenants of the server. */
  readonly tenants: Tenants;
  /** Extension: the named volumes that the server keeps. */
  readonly volumes: Volumes;
  /** Templates, pools of the server, policies, diagnostics and the audit record. */
  readonly operator: Operator;
  readonly #server: Target;
  readonly #root: Target;

  /**
   * A client with these settings over those of the environment and of the command line's file; a
   * {@link ConnectionConfig} is taken as it is. Sends nothing yet.
   */
  constructor(options: ConnectionOptions | ConnectionConfig = {}) {
    this.config = options instanceof ConnectionConfig ? options : ConnectionConfig.load(options);
    const headers: Record<string, string> = {};
    if (this.config.apiKey !== undefined) headers[API_KEY_HEADER] = this.config.apiKey;
    this.#server = new Target(this.config, this.config.baseUrl, headers);
    this.#root = new Target(this.config, this.config.rootUrl, headers);
    this.images = new Images(this.#server);
    this.keys = new Keys(this.#server);
    this.tenants = new Tenants(this.#server);
    this.volumes = new Volumes(this.#server);
    this.operator = new Operator(this.#server, this.#root);
  }

  /** Makes a sandbox. */
  create(source: SandboxSource, options: Omit<CreateOptions, "client" | "connection"> = {}): Promise<Sandbox> {
    return createSandbox(this, source, options);
  }

  /** Connects to a sandbox that exists. */
  connect(id: string, options: Omit<ConnectOptions, "client" | "connection"> = {}): Promise<Sandbox> {
    return connectSandbox(this, id, options);
  }

  /** A handle to a sandbox without any request. */
  sandbox(id: string): Sandbox {
    return new Sandbox(this, id);
  }

  /**
   * Sends a request to make a sandbox and does not wait until it is ready. Our server answers when
   * it is; `timeoutSeconds` is how long that may take.
   */
  async createRequest(
    request: CreateSandboxRequest,
    options: WaitOptions & { idempotencyKey?: string | undefined } = {},
  ): Promise<CreateSandboxResponse> {
    const key = options.idempotencyKey;
    return this.#server.json("POST", "/sandboxes", {
      json: request,
      timeoutSeconds: Math.max(options.timeoutSeconds ?? READY_TIMEOUT_SECONDS, this.config.requestTimeoutSeconds),
      signal: options.signal,
      // The server makes one sandbox however often the same key comes.
      ...(key === undefined ? {} : { headers: { "Idempotency-Key": key }, isRepeatable: true }),
    });
  }

  /** What the server knows of a sandbox. */
  async get(id: string, options: Abortable = {}): Promise<SandboxInfo> {
    return this.#server.json("GET", sandboxPath(id), options);
  }

  /** Sandboxes, newest first, page by page as they are read. */
  async *list(filter: SandboxFilter = {}): AsyncGenerator<SandboxInfo, void, undefined> {
    yield* pages(filter.page, (page) => this.listPage({ ...filter, page }));
  }

  /** One page of sandboxes, newest first. */
  async listPage(filter: SandboxFilter = {}): Promise<ListSandboxesResponse> {
    const labels = Object.entries(filter.metadata ?? {});
    return this.#server.json("GET", "/sandboxes", {
      query: query([
        ...(filter.states ?? []).map((state): [string, string] => ["state", state]),
        // A query inside the query: its names and values are encoded once more.
        ["metadata", labels.length === 0 ? undefined : query(labels)],
        ["page", filter.page],
        ["pageSize", filter.pageSize],
      ]),
      signal: filter.signal,
    });
  }

  /** Ends a sandbox. */
  async kill(id: string, options: Abortable = {}): Promise<void> {
    await this.#server.done("DELETE", sandboxPath(id), options);
  }

  /** Freezes a sandbox; answers when it is frozen. */
  async pause(id: string, options: WaitOptions = {}): Promise<void> {
    await this.#server.done("POST", sandboxPath(id, "/pause"), { signal: options.signal });
    await this.waitForState(id, "Paused", options);
  }

  /** Lets a sandbox run on; answers when it runs. */
  async resume(id: string, options: WaitOptions = {}): Promise<void> {
    await this.#server.done("POST", sandboxPath(id, "/resume"), { signal: options.signal });
    await this.waitForState(id, "Running", options);
  }

  /** Waits until a sandbox is in this state; fails when it gets into one from which it never comes. */
  async waitForState(id: string, wanted: SandboxState, options: WaitOptions = {}): Promise<void> {
    await until(this, {
      what: `sandbox ${id} to be ${wanted}`,
      sandboxId: id,
      timeoutSeconds: options.timeoutSeconds ?? CHANGE_TIMEOUT_SECONDS,
      signal: options.signal,
      check: async (signal) => {
        const { state, message } = (await this.get(id, { signal })).status;
        if (state === wanted) return true;
        if (state === "Failed" || state === "Terminated") throw new FailedError(`sandbox ${id}`, state, message ?? "");
        return undefined;
      },
    });
  }

  /** Lets a sandbox live this much longer, from now; answers when it ends. */
  async renew(id: string, lifetimeSeconds: number, options: Abortable = {}): Promise<Date> {
    const expires = new Date(Date.now() + lifetimeSeconds * 1000);
    if (Number.isNaN(expires.getTime())) throw new InvalidArgumentError(`${lifetimeSeconds} is not a lifetime in seconds`);
    const json = { expiresAt: expires.toISOString() };
    const path = sandboxPath(id, "/renew-expiration");
    const answer = await this.#server.json<RenewSandboxExpirationResponse>("POST", path, { json, signal: options.signal });
    return new Date(answer.expiresAt);
  }

  /** Sets labels of a sandbox, and removes those that are `null`. */
  async patchMetadata(id: string, patch: Record<string, string | null>, options: Abortable = {}): Promise<SandboxInfo> {
    return this.#server.json("PATCH", sandboxPath(id, "/metadata"), { json: patch, signal: options.signal });
  }

  /** Where a port of a sandbox is reached from outside; signed, it is good for anyone until it expires. */
  async endpoint(id: string, port: number, options: Abortable & { expires?: Date | undefined } = {}): Promise<Endpoint> {
    const expires = options.expires === undefined ? undefined : Math.floor(options.expires.getTime() / 1000);
    return this.#server.json("GET", sandboxPath(id, `/endpoints/${port}`), {
      query: query([["expires", expires], ["use_server_proxy", this.config.useServerProxy ? true : undefined]]),
      // Held until the sandbox is ready, which may take as long as its image takes to come.
      timeoutSeconds: Math.max(READY_TIMEOUT_SECONDS, this.config.requestTimeoutSeconds),
      signal: options.signal,
    });
  }

  /** @internal A link for a browser; {@link Sandbox.link} says more. */
  async link(id: string, port: number, options: Abortable & { until?: Date | undefined }): Promise<string> {
    const expires = options.until === undefined ? undefined : Math.floor(options.until.getTime() / 1000);
    const { link } = await this.#server.json<Endpoint>("GET", sandboxPath(id, `/endpoints/${port}`), {
      query: query([["link", true], ["expires", expires]]),
      signal: options.signal,
    });
    if (!link) throw new InvalidArgumentError("the server knows no links; use one with an ingress gateway");
    return link;
  }

  /** Begins a copy of a sandbox's filesystem. */
  async createSnapshot(id: string, options: Abortable & { name?: string | undefined } = {}): Promise<Snapshot> {
    return this.#server.json("POST", sandboxPath(id, "/snapshots"), {
      json: options.name === undefined ? {} : { name: options.name },
      // A server may answer only when the copy is made.
      timeoutSeconds: CHANGE_TIMEOUT_SECONDS,
      signal: options.signal,
    });
  }

  /** A snapshot. */
  async getSnapshot(id: string, options: Abortable = {}): Promise<Snapshot> {
    return this.#server.json("GET", `/snapshots/${segment(id)}`, options);
  }

  /** Waits until sandboxes can be made from a snapshot. */
  async waitForSnapshot(id: string, options: WaitOptions = {}): Promise<Snapshot> {
    return until(this, {
      what: `snapshot ${id} to be ready`,
      timeoutSeconds: options.timeoutSeconds ?? CHANGE_TIMEOUT_SECONDS,
      signal: options.signal,
      check: async (signal) => {
        const snapshot = await this.getSnapshot(id, { signal });
        const { state, message } = snapshot.status;
        if (state === "Failed" || state === "Deleting") throw new FailedError(`snapshot ${id}`, state, message ?? "");
        return state === "Ready" ? snapshot : undefined;
      },
    });
  }

  /** Snapshots, newest first, page by page as they are read. */
  async *listSnapshots(filter: SnapshotFilter = {}): AsyncGenerator<Snapshot, void, undefined> {
    yield* pages(filter.page, (page) => this.listSnapshotsPage({ ...filter, page }));
  }

  /** One page of snapshots, newest first. */
  async listSnapshotsPage(filter: SnapshotFilter = {}): Promise<ListSnapshotsResponse> {
    return this.#server.json("GET", "/snapshots", {
      query: query([
        ["sandboxId", filter.sandboxId],
        ["name", filter.name],
        ...(filter.states ?? []).map((state): [string, string] => ["state", state]),
        ["page", filter.page],
        ["pageSize", filter.pageSize],
      ]),
      signal: filter.signal,
    });
  }

  /** Removes a snapshot. */
  async deleteSnapshot(id: string, options: Abortable = {}): Promise<void> {
    await this.#server.done("DELETE", `/snapshots/${segment(id)}`, options);
  }

  /** Extension: what happens to sandboxes, as it happens; of one sandbox only, and only after this event, if given. */
  async events(
    options: Abortable & { sandboxId?: string | undefined; after?: number | undefined } = {},
  ): Promise<ValueStream<LifecycleEvent>> {
    const parameters = query([["sandboxId", options.sandboxId], ["after", options.after]]);
    return new ValueStream(await this.#server.send("GET", "/events", { query: parameters, signal: options.signal }), "events");
  }

  /**
   * Extension: what a sandbox's main program prints, as it does, after at most `tail` of the lines
   * before. The last event is `end`; a stream that ends without it was cut off.
   */
  async followLogs(
    id: string,
    options: Abortable & { tail?: number | undefined } = {},
  ): Promise<ValueStream<LogEvent>> {
    const call = { query: query([["tail", options.tail]]), signal: options.signal };
    return new ValueStream(await this.#server.send("GET", sandboxPath(id, "/logs"), call), "a log");
  }

  /** Whether the server is well. */
  async health(options: Abortable = {}): Promise<HealthResponse> {
    return this.#root.json("GET", "/health", options);
  }

  /** The version of the contract that the server speaks. */
  async version(options: Abortable = {}): Promise<VersionResponse> {
    return this.#root.json("GET", "/version", options);
  }

  /**
   * Any request of the control plane that has no method of its own yet: a path below `/v1` with its
   * encoded query, and a JSON body. Answers `null` where the answer has no body.
   */
  async request(method: string, path: string, body?: unknown, options: Abortable = {}): Promise<unknown> {
    const at = path.indexOf("?");
    const text = await this.#server.text(method, at < 0 ? path : path.slice(0, at), {
      query: at < 0 ? "" : path.slice(at + 1),
      ...(body === undefined || body === null ? {} : { json: body }),
      signal: options.signal,
    });
    return text === "" ? null : JSON.parse(text);
  }
}

/** The path of a sandbox, and of what belongs to it. */
export function sandboxPath(id: string, rest = ""): string {
  return `/sandboxes/${segment(id)}${rest}`;
}

interface PageOf<T> {
  items: T[];
  pagination: { hasNextPage: boolean };
}

/** The items of one page after the other. */
async function* pages<T>(
  first: number | undefined,
  fetchPage: (page: number) => Promise<PageOf<T>>,
): AsyncGenerator<T, void, undefined> {
  for (let number = first ?? 1; ; number++) {
    const page = await fetchPage(number);
    yield* page.items;
    if (!page.pagination.hasNextPage) return;
  }
}
