// Waiting for a sandbox to be usable, and connecting to one that exists.

import type { Client } from "./client.ts";
import type { ConnectionConfig, ConnectionOptions } from "./config.ts";
import { FailedError, NotReadyError, OpenSandboxError } from "./errors.ts";
import { Sandbox } from "./sandbox.ts";
import { type Abortable, deadline, pause } from "./transport.ts";

/** How long a sandbox may take to be ready, as in the other SDKs. */
export const READY_TIMEOUT_SECONDS = 30;

/**
 * How long to wait before asking again. Our server holds the first request until the sandbox is
 * ready; the published one tells nobody, so that asking again is all there is.
 */
const ASK_AGAIN_SECONDS = 0.2;

/** How to wait until a sandbox can be used. */
export interface ReadyOptions extends Abortable {
  /** How long it may take to be ready, pulling its image included. */
  readyTimeoutSeconds?: number | undefined;
  /** How long to wait before asking again whether it is ready. */
  healthCheckIntervalSeconds?: number | undefined;
  /** Do not wait until it answers. */
  skipReady?: boolean | undefined;
}

/** How to connect to a sandbox that exists. */
export interface ConnectOptions extends ReadyOptions {
  /** By which client; without one, one with the settings of `connection`. */
  client?: Client | undefined;
  /** Where the server is, over the environment and the command line's file. */
  connection?: ConnectionOptions | ConnectionConfig | undefined;
  /** Resume it first, when it is paused. */
  resume?: boolean | undefined;
}

/** Connects to a sandbox that exists. */
export async function connectSandbox(client: Client, id: string, options: ConnectOptions): Promise<Sandbox> {
  if (options.resume === true) await client.resume(id, { signal: options.signal });
  const sandbox = new Sandbox(client, id);
  if (options.skipReady !== true) await ready(sandbox, options);
  return sandbox;
}

/** Waits until the daemon in the sandbox answers. */
export async function ready(sandbox: Sandbox, options: ReadyOptions): Promise<void> {
  const seconds = options.readyTimeoutSeconds ?? READY_TIMEOUT_SECONDS;
  const controller = new AbortController();
  let last: unknown;
  const abort = () => controller.abort(options.signal?.reason);
  if (options.signal?.aborted) abort();
  options.signal?.addEventListener("abort", abort, { once: true });
  const stop = deadline(seconds, () => controller.abort(new NotReadyError(sandbox.id, seconds, last)));
  try {
    for (;;) {
      try {
        return await sandbox.ping({ signal: controller.signal });
      } catch (error) {
        if (controller.signal.aborted || !mayPass(error)) throw error;
        last = error;
      }
      await refuseHopeless(sandbox, controller.signal);
      await pause(options.healthCheckIntervalSeconds ?? ASK_AGAIN_SECONDS, controller.signal);
    }
  } finally {
    stop();
    options.signal?.removeEventListener("abort", abort);
  }
}

/** Whether the same question may be answered otherwise in a moment. */
function mayPass(error: unknown): boolean {
  if (!(error instanceof OpenSandboxError)) return false;
  switch (error.status) {
    case undefined:
      return error.kind === "connection" || error.kind === "timeout";
    case 400:
    case 401:
    case 403:
    case 410:
      return false;
    case 404:
      // The sandbox itself is not known, as opposed to having no address yet.
      return error.code === "KUBERNETES::POD_IP_NOT_AVAILABLE" || !error.code.endsWith("NOT_FOUND");
    default:
      return true;
  }
}

/** Throws if the sandbox is in a state from which it never becomes ready. */
async function refuseHopeless(sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  const info = await sandbox.info({ signal }).catch(() => undefined);
  if (info === undefined) return;
  const { state, message } = info.status;
  if (state === "Failed" || state === "Terminated" || state === "Stopping") {
    throw new FailedError(`sandbox ${sandbox.id}`, state, message ?? "the server does not say why");
  }
  if (state === "Paused" || state === "Pausing") throw new FailedError(`sandbox ${sandbox.id}`, state, "resume it first");
}
