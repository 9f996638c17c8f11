// Waiting for a change on the server: told by its stream of events where it has one, by asking again
// where it does not.

import type { Client } from "./client.ts";
import { ConnectionError, OpenSandboxError, TimeoutError } from "./errors.ts";
import { deadline, pause } from "./transport.ts";

/** How long to wait before asking a server again that tells nobody of changes. */
const ASK_AGAIN_SECONDS = 0.5;

/** What is waited for. */
export interface Wait<T> {
  /** For an error that it took too long. */
  what: string;
  sandboxId?: string;
  timeoutSeconds: number;
  signal: AbortSignal | undefined;
  /** Something once it has come. */
  check(signal: AbortSignal): Promise<T | undefined>;
}

/** Calls `check` now and after every change until it answers something, or the time has passed. */
export async function until<T>(client: Client, wait: Wait<T>): Promise<T> {
  const controller = new AbortController();
  const abort = () => controller.abort(wait.signal?.reason);
  if (wait.signal?.aborted) abort();
  wait.signal?.addEventListener("abort", abort, { once: true });
  const late = new TimeoutError(`waiting for ${wait.what}`, wait.timeoutSeconds);
  const stop = deadline(wait.timeoutSeconds, () => controller.abort(late));
  try {
    return await loop(client, wait, controller.signal);
  } finally {
    stop();
    wait.signal?.removeEventListener("abort", abort);
    // The stream of events, if one is open.
    controller.abort();
  }
}

async function loop<T>(client: Client, wait: Wait<T>, signal: AbortSignal): Promise<T> {
  const first = await wait.check(signal);
  if (first !== undefined) return first;
  for (;;) {
    const told = await byEvents(client, wait, signal);
    if (told !== undefined) return told;
    await pause(ASK_AGAIN_SECONDS, signal);
    const asked = await wait.check(signal);
    if (asked !== undefined) return asked;
  }
}

/** Nothing when the server has no events, or when their stream ends before what is waited for came. */
async function byEvents<T>(client: Client, wait: Wait<T>, signal: AbortSignal): Promise<T | undefined> {
  let events: AsyncIterator<unknown, undefined>;
  try {
    events = await client.events({ sandboxId: wait.sandboxId, signal });
  } catch (error) {
    // The route is not known to this server.
    if (error instanceof OpenSandboxError && [404, 405, 501].includes(error.status ?? 0)) return undefined;
    throw error;
  }
  // Asked only now that no change can be missed any more.
  for (;;) {
    const done = await wait.check(signal);
    if (done !== undefined) return done;
    try {
      if ((await events.next()).done) return undefined;
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      return undefined;
    }
  }
}
