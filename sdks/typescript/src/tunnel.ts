// A plain byte stream to a port of a sandbox, by an HTTP upgrade. `fetch` cannot upgrade, so that this
// is for Node, Bun and Deno, whose `node:http` can.

import { ApiError, ConnectionError, FailedError, TimeoutError } from "./errors.ts";
import { builtin } from "./runtime.ts";
import { deadline, type Target } from "./transport.ts";

interface Socket {
  on(event: "data", listener: (bytes: Uint8Array) => void): this;
  on(event: "end" | "close" | "drain", listener: () => void): this;
  on(event: "error", listener: (error: Error) => void): this;
  once(event: "drain", listener: () => void): this;
  write(bytes: Uint8Array, done: (error?: Error | null) => void): boolean;
  end(): void;
  destroy(): void;
  pause(): void;
  resume(): void;
}

interface HttpResponse {
  statusCode?: number;
  headers: Record<string, string | undefined>;
  on(event: "data", listener: (bytes: Uint8Array) => void): this;
  on(event: "end", listener: () => void): this;
}

interface HttpRequest {
  on(event: "upgrade", listener: (response: HttpResponse, socket: Socket, head: Uint8Array) => void): this;
  on(event: "response", listener: (response: HttpResponse) => void): this;
  on(event: "error", listener: (error: Error) => void): this;
  destroy(): void;
  end(): void;
}

interface Http {
  request(url: string, options: { headers: Record<string, string>; agent: false }): HttpRequest;
}

/** A byte stream in both directions. */
export class Tunnel {
  /** What comes from the port. */
  readonly readable: ReadableStream<Uint8Array>;
  /** What goes to the port; closing it says that nothing more comes. */
  readonly writable: WritableStream<Uint8Array>;
  readonly #socket: Socket;

  /** @internal */
  constructor(socket: Socket, head: Uint8Array) {
    this.#socket = socket;
    let isOver = false;
    this.readable = new ReadableStream<Uint8Array>({
      start(controller) {
        const over = () => {
          if (!isOver) controller.close();
          isOver = true;
        };
        if (head.length > 0) controller.enqueue(new Uint8Array(head));
        socket.on("data", (bytes) => {
          if (isOver) return;
          controller.enqueue(new Uint8Array(bytes));
          if ((controller.desiredSize ?? 0) <= 0) socket.pause();
        });
        socket.on("end", over).on("close", over);
        socket.on("error", (error) => {
          if (!isOver) controller.error(error);
          isOver = true;
        });
      },
      pull: () => socket.resume(),
      cancel: () => {
        isOver = true;
        socket.destroy();
      },
    });
    this.writable = new WritableStream<Uint8Array>({
      write: (bytes) =>
        new Promise((resolve, reject) => {
          socket.write(bytes, (error) => (error ? reject(error) : resolve()));
        }),
      close: () => socket.end(),
      abort: () => socket.destroy(),
    });
  }

  /** Ends it in both directions. */
  close(): void {
    this.#socket.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Asks for the upgrade. */
export function openTunnel(target: Target, signal: AbortSignal | undefined): Promise<Tunnel> {
  const http = builtin<Http>(target.base.startsWith("https:") ? "node:https" : "node:http");
  if (http === undefined) {
    throw new FailedError("this runtime", "without sockets", "open the tunnel from Node, Bun or Deno");
  }
  const limit = target.config.requestTimeoutSeconds;
  return new Promise((resolve, reject) => {
    const headers = { ...target.config.headers, ...target.headers, Connection: "upgrade", Upgrade: "tcp" };
    const request = http.request(`${target.base}/`, { headers, agent: false });
    const settle = (act: () => void) => {
      stop();
      signal?.removeEventListener("abort", abort);
      act();
    };
    const fail = (error: unknown) =>
      settle(() => {
        request.destroy();
        reject(error);
      });
    const stop = deadline(limit, () => fail(new TimeoutError("opening a tunnel", limit)));
    const abort = () => fail(signal?.reason);
    if (signal?.aborted) return abort();
    signal?.addEventListener("abort", abort, { once: true });
    request.on("upgrade", (_, socket, head) => settle(() => resolve(new Tunnel(socket, head))));
    request.on("response", (response) => refused(response, fail));
    request.on("error", (error) => fail(new ConnectionError(target.base, false, error)));
    request.end();
  });
}

function refused(response: HttpResponse, fail: (error: unknown) => void): void {
  const decoder = new TextDecoder();
  let text = "";
  response.on("data", (bytes) => {
    text += decoder.decode(bytes, { stream: true });
  });
  response.on("end", () => {
    let body: { code?: string; message?: string } = {};
    try {
      body = JSON.parse(text);
    } catch {
      // The status alone says enough.
    }
    fail(
      new ApiError({
        what: "GET /",
        status: response.statusCode ?? 0,
        code: body.code ?? "",
        message: body.message ?? "the server does not open a tunnel",
        requestId: response.headers["x-request-id"],
      }),
    );
  });
}
