// Making a sandbox: what it should have, and waiting until it can be used.

import type { Client } from "./client.ts";
import type { ConnectionConfig, ConnectionOptions } from "./config.ts";
import { type ReadyOptions, READY_TIMEOUT_SECONDS, ready } from "./connect.ts";
import { InvalidArgumentError } from "./errors.ts";
import { Sandbox } from "./sandbox.ts";
import type {
  CreateSandboxRequest,
  ImageAuth,
  NetworkPolicy,
  PlatformSpec,
  SandboxLifecycle,
  Volume,
} from "./wire.ts";

/** How long a sandbox lives that nothing was said about, as in the other SDKs. */
export const DEFAULT_LIFETIME_SECONDS = 600;

/** What a sandbox may use that nothing was said about, as in the other SDKs. */
const DEFAULT_RESOURCES = { cpu: "1", memory: "2Gi" };

/** What a sandbox does that nothing was said about: it stays. */
const DEFAULT_ENTRYPOINT = ["tail", "-f", "/dev/null"];

/** Renews a sandbox by this many seconds on each access through the server. */
const EXTENSION_RENEW_SECONDS = "access.renew.extend.seconds";

/** What a sandbox starts from: an image by its reference, a private one, a snapshot or a template. */
export type SandboxSource =
  | string
  | { image: string; auth?: ImageAuth | undefined }
  | { snapshotId: string }
  | { templateId: string };

/** What a sandbox should have. */
export interface CreateOptions extends ReadyOptions {
  /** By which client; without one, one with the settings of `connection`. */
  client?: Client | undefined;
  /** Where the server is, over the environment and the command line's file. */
  connection?: ConnectionOptions | ConnectionConfig | undefined;
  /** A label `name`, by which it can be listed. */
  name?: string | undefined;
  /** How long it lives; `null` is until it is killed. */
  lifetimeSeconds?: number | null | undefined;
  /** Each request to it through the server lets it live so much longer; the operator must allow it. */
  renewOnAccessSeconds?: number | undefined;
  /** The environment of everything that runs in it. */
  env?: Record<string, string> | undefined;
  /** Labels. */
  metadata?: Record<string, string> | undefined;
  /** How much it may use, over the defaults: `cpu`, `memory`, `disk`, `pids`, `gpu`. */
  resources?: Record<string, string> | undefined;
  /** How much it is sure to get. */
  resourceRequests?: Record<string, string> | undefined;
  /** The command that it supervises. */
  entrypoint?: string[] | undefined;
  /** What it may reach. */
  networkPolicy?: NetworkPolicy | undefined;
  /** Whether credentials are put into its requests on the way out. */
  credentialProxy?: boolean | undefined;
  /** Whether its endpoints need a token of their own. */
  secureAccess?: boolean | undefined;
  /** What is mounted into it; see `hostVolume` and `namedVolume`. */
  volumes?: Volume[] | undefined;
  /** Its platform. */
  platform?: PlatformSpec | undefined;
  /** Hooks that run in it. */
  lifecycle?: SandboxLifecycle | undefined;
  /** Further settings by name. */
  extensions?: Record<string, string> | undefined;
  /** Extension: makes the request safe to repeat, also by this package after a broken connection. */
  idempotencyKey?: string | undefined;
}

/** The request as it goes over the wire. */
export function createRequest(source: SandboxSource, options: CreateOptions): CreateSandboxRequest {
  const request: CreateSandboxRequest = {};
  if (!source) throw new InvalidArgumentError("a sandbox starts from an image, a snapshot or a template; name one");
  const given = typeof source === "string" ? { image: source } : source;
  if ("image" in given) request.image = { uri: given.image, ...("auth" in given && given.auth ? { auth: given.auth } : {}) };
  else if ("snapshotId" in given) request.snapshotId = given.snapshotId;
  else request.templateId = given.templateId;
  // A template says by itself what its sandboxes may use and do.
  const isFree = request.templateId === undefined;
  const lifetime = options.lifetimeSeconds === undefined ? DEFAULT_LIFETIME_SECONDS : options.lifetimeSeconds;
  if (lifetime !== null) request.timeout = wholeSeconds(lifetime);
  const resources = { ...(isFree ? DEFAULT_RESOURCES : {}), ...options.resources };
  if (Object.keys(resources).length > 0) request.resourceLimits = resources;
  const entrypoint = options.entrypoint ?? (isFree ? DEFAULT_ENTRYPOINT : undefined);
  if (entrypoint !== undefined) request.entrypoint = entrypoint;
  if (options.resourceRequests !== undefined) request.resourceRequests = options.resourceRequests;
  if (options.env !== undefined) request.env = options.env;
  const metadata = { ...(options.name === undefined ? {} : { name: options.name }), ...options.metadata };
  if (Object.keys(metadata).length > 0) request.metadata = metadata;
  if (options.networkPolicy !== undefined) request.networkPolicy = options.networkPolicy;
  if (options.credentialProxy !== undefined) request.credentialProxy = { enabled: options.credentialProxy };
  if (options.secureAccess !== undefined) request.secureAccess = options.secureAccess;
  if (options.volumes !== undefined) request.volumes = options.volumes;
  if (options.platform !== undefined) request.platform = options.platform;
  if (options.lifecycle !== undefined) request.lifecycle = options.lifecycle;
  const extensions = { ...options.extensions };
  if (options.renewOnAccessSeconds !== undefined) {
    extensions[EXTENSION_RENEW_SECONDS] = String(wholeSeconds(options.renewOnAccessSeconds));
  }
  if (Object.keys(extensions).length > 0) request.extensions = extensions;
  return request;
}

function wholeSeconds(seconds: number): number {
  if (!(seconds > 0)) throw new InvalidArgumentError(`${seconds} is not a time in seconds`);
  return Math.min(Math.floor(seconds), Number.MAX_SAFE_INTEGER);
}

/** Makes a sandbox and waits until it can be used. */
export async function createSandbox(client: Client, source: SandboxSource, options: CreateOptions): Promise<Sandbox> {
  const created = await client.createRequest(createRequest(source, options), {
    timeoutSeconds: options.readyTimeoutSeconds ?? READY_TIMEOUT_SECONDS,
    idempotencyKey: options.idempotencyKey,
    signal: options.signal,
  });
  const sandbox = new Sandbox(client, created.id, true);
  if (options.skipReady === true) return sandbox;
  try {
    await ready(sandbox, options);
  } catch (error) {
    // Nobody would know its id; whether this works is not the caller's question.
    await sandbox.kill().catch(() => {});
    throw error;
  }
  return sandbox;
}

/** A directory of the host. The operator decides which are allowed. */
export function hostVolume(name: string, hostPath: string, mountPath: string, options: { readOnly?: boolean } = {}): Volume {
  return { name, host: { path: hostPath }, mountPath, readOnly: options.readOnly === true };
}

/** A named volume that outlives the sandbox; it is made when it does not exist. */
export function namedVolume(name: string, volume: string, mountPath: string, options: { readOnly?: boolean } = {}): Volume {
  const pvc = { claimName: volume, createIfNotExists: true, deleteOnSandboxTermination: false };
  return { name, pvc, mountPath, readOnly: options.readOnly === true };
}
