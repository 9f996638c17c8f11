// A pool of sandboxes on the client's side: some are kept ready, so that taking one costs one
// request. The server sees nothing but sandboxes being made and ended.

import type { Client } from "./client.ts";
import { ready } from "./connect.ts";
import { type CreateOptions, createSandbox, DEFAULT_LIFETIME_SECONDS, type SandboxSource } from "./create.ts";
import { PoolClosedError, PoolEmptyError, TimeoutError } from "./errors.ts";
import type { Sandbox } from "./sandbox.ts";
import { type Abortable, deadline } from "./transport.ts";

/** Failures in a row after which the pool waits before it tries again, as in the other SDKs. */
const DEGRADED_AFTER = 3;

/** How long it then waits. There is no event to wait for: the server is busy or away. */
const DEGRADED_DELAY_SECONDS = 1;

const DEFAULT_IDLE_TIMEOUT_SECONDS = 24 * 3600;
const DEFAULT_WARMUP_CONCURRENCY = 8;

/** What a pool keeps ready, and how. */
export interface PoolOptions {
  /** What each sandbox has. How long it lives is the pool's affair. */
  sandbox?: Omit<CreateOptions, "client" | "connection" | "lifetimeSeconds" | "signal" | "idempotencyKey"> | undefined;
  /** How many are kept ready. */
  maxIdle: number;
  /** How many are made at the same time. */
  warmupConcurrency?: number | undefined;
  /** One that was ready for longer is thrown away. */
  idleTimeoutSeconds?: number | undefined;
  /** What to do when none is ready: make one for this caller, or fail with a {@link PoolEmptyError}. */
  policy?: "create" | "fail" | undefined;
}

/** How a pool stands. */
export interface PoolStatus {
  /** Ready. */
  idle: number;
  /** Being made. */
  warming: number;
  /** How many are to be ready. */
  maxIdle: number;
  /** The last attempts to make one failed. */
  isDegraded: boolean;
}

interface Idle {
  sandbox: Sandbox;
  stopExpiry(): void;
}

/**
 * Sandboxes that are kept ready. {@link Pool.shutdown} ends those that are, as does leaving an
 * `await using` block.
 *
 * ```ts
 * await using pool = new Pool(client, "python:3.12", { maxIdle: 4 });
 * await using sandbox = await pool.acquire(600);
 * ```
 */
export class Pool {
  readonly #client: Client;
  readonly #source: SandboxSource;
  readonly #options: PoolOptions;
  readonly #idleTimeoutSeconds: number;
  readonly #idle: Idle[] = [];
  readonly #warming = new Set<Promise<void>>();
  readonly #changed = new Set<() => void>();
  #maxIdle: number;
  #failures = 0;
  #lastFailure: unknown;
  #isClosed = false;
  #stopDelay: (() => void) | undefined;

  /** Begins to keep sandboxes ready. */
  constructor(client: Client, source: SandboxSource, options: PoolOptions) {
    this.#client = client;
    this.#source = source;
    this.#options = options;
    this.#maxIdle = options.maxIdle;
    this.#idleTimeoutSeconds = options.idleTimeoutSeconds ?? DEFAULT_IDLE_TIMEOUT_SECONDS;
    this.#fill();
  }

  /** Takes a sandbox that is ready; it then lives for so long and belongs to the caller. */
  async acquire(lifetimeSeconds: number, options: Abortable = {}): Promise<Sandbox> {
    for (;;) {
      if (this.#isClosed) throw new PoolClosedError();
      options.signal?.throwIfAborted();
      const sandbox = this.#take();
      if (sandbox === undefined) break;
      try {
        await ready(sandbox, options);
        await sandbox.renew(lifetimeSeconds, options);
        return sandbox;
      } catch (error) {
        // It died while it waited; the next may not have.
        await discard(sandbox);
        if (options.signal?.aborted) throw error;
      }
    }
    if (this.#options.policy === "fail") throw new PoolEmptyError(this.#lastFailure);
    return createSandbox(this.#client, this.#source, { ...this.#options.sandbox, ...options, lifetimeSeconds });
  }

  /** How it stands. */
  get status(): PoolStatus {
    return {
      idle: this.#idle.length,
      warming: this.#warming.size,
      maxIdle: this.#maxIdle,
      isDegraded: this.#failures >= DEGRADED_AFTER,
    };
  }

  /** Keeps this many ready from now on; what is too much is ended. */
  async resize(maxIdle: number): Promise<void> {
    this.#maxIdle = maxIdle;
    const surplus = this.#idle.splice(0, Math.max(0, this.#idle.length - maxIdle));
    this.#fill();
    this.#tell();
    await Promise.all(surplus.map(end));
  }

  /** Waits until as many are ready as should be, or making them failed. */
  async waitUntilWarm(timeoutSeconds: number, options: Abortable = {}): Promise<void> {
    const isWarm = () => this.#idle.length >= this.#maxIdle;
    await new Promise<void>((resolve, reject) => {
      const settle = (act: () => void) => {
        stop();
        this.#changed.delete(look);
        options.signal?.removeEventListener("abort", abort);
        act();
      };
      const look = () => {
        if (isWarm()) settle(resolve);
        else if (this.status.isDegraded) settle(() => reject(new PoolEmptyError(this.#lastFailure)));
        else if (this.#isClosed) settle(() => reject(new PoolClosedError()));
      };
      const stop = deadline(timeoutSeconds, () => settle(() => reject(new TimeoutError("warming the pool", timeoutSeconds))));
      const abort = () => settle(() => reject(options.signal?.reason));
      options.signal?.addEventListener("abort", abort, { once: true });
      this.#changed.add(look);
      if (options.signal?.aborted) abort();
      else look();
    });
  }

  /** Stops, and ends every sandbox that is ready. */
  async shutdown(): Promise<void> {
    this.#isClosed = true;
    this.#stopDelay?.();
    // What is being made is made, and then ended with the others.
    await Promise.all(this.#warming);
    await Promise.all(this.#idle.splice(0).map(end));
    this.#tell();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown();
  }

  /** The one that waited longest, so that all are used. */
  #take(): Sandbox | undefined {
    const idle = this.#idle.shift();
    idle?.stopExpiry();
    this.#fill();
    return idle?.sandbox;
  }

  /** Makes what is missing. */
  #fill(): void {
    const most = Math.max(1, this.#options.warmupConcurrency ?? DEFAULT_WARMUP_CONCURRENCY);
    while (
      !this.#isClosed &&
      this.#stopDelay === undefined &&
      this.#warming.size < most &&
      this.#idle.length + this.#warming.size < this.#maxIdle
    ) {
      const warming: Promise<void> = this.#warm().finally(() => {
        this.#warming.delete(warming);
        this.#tell();
        this.#fill();
      });
      this.#warming.add(warming);
    }
  }

  async #warm(): Promise<void> {
    // An idle sandbox must outlive its time in the pool by at least one use.
    const lifetimeSeconds = this.#idleTimeoutSeconds + DEFAULT_LIFETIME_SECONDS;
    try {
      const sandbox = await createSandbox(this.#client, this.#source, { ...this.#options.sandbox, lifetimeSeconds });
      this.#failures = 0;
      // The pool may have become smaller while it was made.
      if (this.#idle.length < this.#maxIdle) this.#keep(sandbox);
      else await discard(sandbox);
    } catch (error) {
      this.#failures++;
      this.#lastFailure = error;
      if (this.#failures >= DEGRADED_AFTER && this.#stopDelay === undefined && !this.#isClosed) this.#delay();
    }
  }

  #delay(): void {
    const stop = deadline(DEGRADED_DELAY_SECONDS, () => {
      this.#stopDelay = undefined;
      this.#fill();
    });
    this.#stopDelay = stop;
  }

  #keep(sandbox: Sandbox): void {
    const idle: Idle = { sandbox, stopExpiry: () => {} };
    idle.stopExpiry = deadline(this.#idleTimeoutSeconds, () => {
      const at = this.#idle.indexOf(idle);
      if (at < 0) return;
      this.#idle.splice(at, 1);
      void discard(sandbox);
      this.#fill();
    });
    this.#idle.push(idle);
  }

  #tell(): void {
    for (const look of [...this.#changed]) look();
  }
}

async function end(idle: Idle): Promise<void> {
  idle.stopExpiry();
  await discard(idle.sandbox);
}

async function discard(sandbox: Sandbox): Promise<void> {
  // It ends by itself when this does not work.
  await sandbox.kill().catch(() => {});
}
