// Reads calls from stdin, one JSON object a line, makes them with the SDK and answers on stdout; the
// protocol is in sdks/conformance/README.md. Calls overlap, as there.

import { createInterface } from "node:readline";
import { OpenSandboxError } from "../dist/index.js";
import { CALLS } from "./calls.mjs";

/** What calls left under a name, with how it is closed. */
const held = new Map();
/** Calls under way, by their number. */
const running = new Map();

function answer(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

function described(error, signal) {
  if (signal.aborted) return { kind: "cancelled", message: String(error) };
  if (!(error instanceof OpenSandboxError)) return { kind: "runner", message: error?.stack ?? String(error) };
  const cause = error.cause instanceof OpenSandboxError ? error.cause : undefined;
  return {
    kind: error.kind,
    message: error.message,
    status: error.status,
    // An error that wraps one from the wire gives that one's code.
    code: cause?.status === undefined ? error.code : cause.code,
    request_id: error.requestId,
    retryable: error.isRetryable,
    remedy: error.remedy,
  };
}

async function reset() {
  const all = [...held.values()];
  held.clear();
  for (const { value, close } of all.reverse()) await close?.(value);
}

async function call({ id, call: name, on, with: given, as }) {
  const controller = new AbortController();
  running.set(id, controller);
  try {
    if (name === "runner.reset") {
      await reset();
      return answer({ id, result: null });
    }
    const made = CALLS[name];
    if (made === undefined) throw new Error(`this runner has no call ${name}`);
    const object = on === undefined ? undefined : held.get(on)?.value;
    if (on !== undefined && object === undefined) throw new Error(`nothing is held as ${on}`);
    const result = await made(object, given, controller.signal);
    if (as !== undefined) held.set(as, result);
    answer({ id, result: as === undefined ? (result ?? null) : (result.shown ?? null) });
  } catch (error) {
    answer({ id, error: described(error, controller.signal) });
  } finally {
    running.delete(id);
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const message = JSON.parse(line);
  if (message.cancel !== undefined) running.get(message.cancel)?.abort(new Error("cancelled"));
  else void call(message);
});
lines.on("close", () => {
  // Whatever still waits has nobody to answer.
  process.exit(0);
});
answer({ ready: true });
