// Event streams in Bun. When a connection breaks, its `fetch` (1.4) throws away what has arrived and
// was not read yet, so that a stream could not go on after its last event; its `node:http` does not.

import { builtin } from "./runtime.ts";

interface Incoming {
  statusCode: number;
  headers: Record<string, string | string[] | undefined>;
  on(event: "data", listener: (bytes: Uint8Array) => void): this;
  on(event: "end", listener: () => void): this;
  on(event: "error", listener: (error: Error) => void): this;
  pause(): void;
  resume(): void;
  destroy(error?: Error): void;
}

interface Outgoing {
  on(event: "error", listener: (error: Error) => void): this;
  destroy(error?: Error): void;
  end(body?: string): void;
}

interface Http {
  request(
    url: string,
    options: { method: string | undefined; headers: Record<string, string> },
    respond: (response: Incoming) => void,
  ): Outgoing;
}

/** Whether this is Bun. */
export function isBun(): boolean {
  return "Bun" in globalThis;
}

/** As much of `fetch` as event streams need: a text body out, a stream in. */
export function streamingFetch(url: string, init: RequestInit): Promise<Response> {
  const http = builtin<Http>(url.startsWith("https:") ? "node:https" : "node:http");
  if (http === undefined) throw new TypeError("this runtime has no node:http");
  const signal = init.signal;
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const options = { method: init.method, headers: init.headers as Record<string, string> };
    const request = http.request(url, options, (response) => resolve(answer(response, signal)));
    signal?.addEventListener("abort", () => {
      reject(signal.reason);
      request.destroy();
    }, { once: true });
    request.on("error", reject);
    request.end(typeof init.body === "string" ? init.body : undefined);
  });
}

/** Pieces that wait for a reader; beyond this many the connection waits. */
const WAITING_PIECES_MAX = 16;

function answer(response: Incoming, signal: AbortSignal | null | undefined): Response {
  // A web stream that fails throws away what waits in it, so that pieces wait here.
  const pieces: Uint8Array[] = [];
  let end: { error?: unknown } | undefined;
  let wake = () => {};
  const finish = (how: { error?: unknown }) => {
    end ??= how;
    wake();
  };
  response.on("data", (bytes) => {
    pieces.push(new Uint8Array(bytes));
    if (pieces.length >= WAITING_PIECES_MAX) response.pause();
    wake();
  });
  response.on("end", () => finish({}));
  response.on("error", (error) => finish({ error }));
  signal?.addEventListener("abort", () => finish({ error: signal.reason }), { once: true });
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        while (pieces.length === 0 && end === undefined) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
        const piece = pieces.shift();
        if (piece === undefined) {
          if (end !== undefined && "error" in end) throw end.error;
          return controller.close();
        }
        controller.enqueue(piece);
        response.resume();
      },
      cancel: () => response.destroy(),
    },
    { highWaterMark: 0 },
  );
  const headers = new Headers();
  for (const [name, value] of Object.entries(response.headers)) {
    if (value !== undefined) headers.set(name, Array.isArray(value) ? value.join(", ") : value);
  }
  // A Response with one of these must have no body.
  const isEmpty = response.statusCode === 204 || response.statusCode === 304;
  return new Response(isEmpty ? null : body, { status: response.statusCode, headers });
}
