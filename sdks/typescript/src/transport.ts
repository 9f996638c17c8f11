// Requests and their answers: headers, deadlines, errors, and the one place that decides what is
// sent again. Knows nothing of sandboxes.

import { isBun, streamingFetch } from "./bun.ts";
import type { ConnectionConfig } from "./config.ts";
import {
  ApiError,
  ConnectionError,
  InvalidArgumentError,
  isPassing,
  TimeoutError,
  UnreadableError,
} from "./errors.ts";

/** The header that carries the API key. */
export const API_KEY_HEADER = "OPEN-SANDBOX-API-KEY";

const REQUEST_ID_HEADER = "X-Request-ID";

/**
 * An answer that is read into memory as a whole is at most this long. Listings of large trees have
 * some tens of MiB; what is longer is a fault or an attack.
 */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024;

/** As much of an error's body is read as any real one has. */
const ERROR_BYTES_MAX = 64 * 1024;

/** Half an error is still an error; the deadline of the request is long over. */
const ERROR_SECONDS = 5;

/** The longest wait of `setTimeout`, some 24 days: more overflows and fires at once. */
const TIMER_MILLISECONDS_MAX = 2 ** 31 - 1;

/** What can be aborted. */
export interface Abortable {
  /** Ends the call early; it then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** What a request carries. */
export interface Call extends Abortable {
  /** Already encoded. */
  query?: string;
  headers?: Record<string, string>;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is; a stream can be sent only once. */
  body?: Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;
  contentType?: string;
  /** The head of the answer, and then its whole body, may each take this long; `null` is forever. */
  timeoutSeconds?: number | null;
  /** The answer is a stream of events, which must give out all that came before it broke. */
  isEvents?: boolean;
  /** The caller vouches that sending it again is safe. */
  isRepeatable?: boolean;
}

/** The head of a good answer, whose body is still to be read. */
export interface Answer {
  response: Response;
  /** Where it came from, without the query. */
  url: string;
  /** Aborted when the body was given up, with the reason. */
  signal: AbortSignal;
  /** Gives the body up. */
  cancel(reason?: unknown): void;
  /** Says that the body was read, so that nothing listens for its caller's signal any more. */
  release(): void;
}

/** A place that requests go to, with the headers they carry. */
export class Target {
  readonly config: ConnectionConfig;
  /** Without a slash at the end. */
  readonly base: string;
  readonly headers: Readonly<Record<string, string>>;

  constructor(config: ConnectionConfig, base: string, headers: Record<string, string>) {
    this.config = config;
    this.base = base;
    this.headers = headers;
  }

  /** Sends a request and reads the answer as JSON. */
  async json<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const text = await this.text(method, path, call);
    try {
      return JSON.parse(text) as T;
    } catch (error) {
      throw new UnreadableError(`${method} ${path}`, (error as Error).message, undefined, error);
    }
  }

  /** Sends a request and reads the answer as text. */
  async text(method: string, path: string, call: Call = {}): Promise<string> {
    return new TextDecoder().decode(await this.bytes(method, path, call));
  }

  /** Sends a request and reads the answer as bytes. */
  async bytes(method: string, path: string, call: Call = {}): Promise<Uint8Array<ArrayBuffer>> {
    const answer = await this.send(method, path, call);
    return wholeBody(answer, `${method} ${path}`, ANSWER_BYTES_MAX, this.#limit(call));
  }

  /** Sends a request and lets the answer's body, if any, pass. */
  async done(method: string, path: string, call: Call = {}): Promise<void> {
    await this.bytes(method, path, call);
  }

  /**
   * Sends a request, again where that is safe, and answers what came with a good status. The
   * deadline is for the answer's head; the body may take longer.
   */
  async send(method: string, path: string, call: Call = {}): Promise<Answer> {
    const policy = this.config.retry;
    let delay = policy.firstDelaySeconds;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#attempt(method, path, call);
      } catch (error) {
        if (attempt > policy.attempts || !mayRepeat(method, call, error)) throw error;
        const asked = error instanceof ApiError ? error.retryAfterSeconds : undefined;
        // There is no event to wait for: the other side is busy or away.
        await pause(Math.min(asked ?? delay, policy.longestDelaySeconds), call.signal);
        // Spread out, so that clients that failed together do not return together.
        const spread = policy.firstDelaySeconds + Math.random() * (3 * delay - policy.firstDelaySeconds);
        delay = Math.min(Math.max(spread, policy.firstDelaySeconds), policy.longestDelaySeconds);
      }
    }
  }

  #limit(call: Call): number | null {
    return call.timeoutSeconds === undefined ? this.config.requestTimeoutSeconds : call.timeoutSeconds;
  }

  async #attempt(method: string, path: string, call: Call): Promise<Answer> {
    const what = `${method} ${path}`;
    if (method === "POST" || method === "PATCH") await turn();
    const link = linked(call.signal);
    const limit = this.#limit(call);
    const stop = deadline(limit, () => link.controller.abort(new TimeoutError(what, limit ?? 0)));
    const url = `${this.base}${path}`;
    let response: Response;
    try {
      const fetch = call.isEvents === true && isBun() && !this.config.hasOwnFetch ? streamingFetch : this.config.fetch;
      response = await fetch(call.query ? `${url}?${call.query}` : url, this.#init(method, call, link));
    } catch (error) {
      link.release();
      if (link.controller.signal.aborted) throw link.controller.signal.reason;
      throw new ConnectionError(url, isUnsent(error), error);
    } finally {
      stop();
    }
    const answer: Answer = {
      response,
      url,
      signal: link.controller.signal,
      cancel: (reason) => {
        link.release();
        link.controller.abort(reason);
      },
      release: link.release,
    };
    if (response.ok) return answer;
    throw await refusal(what, answer);
  }

  #init(method: string, call: Call, link: Link): RequestInit & { duplex?: "half" } {
    const headers: Record<string, string> = {
      "User-Agent": this.config.userAgent,
      ...this.config.headers,
      ...this.headers,
      ...call.headers,
    };
    const init: RequestInit & { duplex?: "half" } = {
      method,
      headers,
      signal: link.controller.signal,
      // Credentials are in headers of our own, which a redirect must not carry elsewhere.
      redirect: "manual",
    };
    if (call.json !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = onceInDeno(JSON.stringify(call.json));
    } else if (call.body !== undefined) {
      headers["Content-Type"] = call.contentType ?? "application/octet-stream";
      init.body = call.body;
    } else if ((method === "POST" || method === "PATCH") && isDeno()) {
      init.body = onceInDeno("");
    }
    if (init.body instanceof ReadableStream) init.duplex = "half";
    return init;
  }
}

/**
 * Deno sends a request again by itself when a kept connection breaks, also one that may have been
 * done, unless its body is a stream. Which requests are repeated is decided here alone.
 */
function onceInDeno(text: string): string | ReadableStream<Uint8Array> {
  return isDeno() ? new Blob([text]).stream() : text;
}

function isDeno(): boolean {
  return "Deno" in globalThis;
}

function mayRepeat(method: string, call: Call, error: unknown): boolean {
  if (call.body instanceof ReadableStream) return false;
  const isSafe = call.isRepeatable === true || method !== "POST" && method !== "PATCH";
  if (error instanceof ConnectionError) return error.isUnsent || isSafe;
  return error instanceof ApiError && isSafe && isPassing(error.status);
}

/** Codes of Node and Bun that say that no connection was made. */
const UNSENT_CODES = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
  "ConnectionRefused",
  "FailedToOpenSocket",
]);

/** Whether a request certainly did not leave. Browsers never say, so that the answer there is no. */
function isUnsent(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (UNSENT_CODES.has((cause as { code?: string }).code ?? "")) return true;
    // Deno has no codes; and `fetch` never leaves for the ports that its standard blocks.
    if (cause.message.includes("client error (Connect)") || cause.message === "bad port") return true;
  }
  return false;
}

/**
 * Lets the runtime see which kept connections were closed meanwhile. One that is used in the same
 * turn of the event loop as its end arrives fails the request, which may then not be repeated.
 */
function turn(): Promise<void> | undefined {
  const soon = (globalThis as { setImmediate?: (act: () => void) => void }).setImmediate;
  return soon && new Promise((resolve) => soon(resolve));
}

interface Link {
  controller: AbortController;
  release(): void;
}

/** A controller that also aborts when this signal does. `AbortSignal.any` leaves listeners behind in Node 22. */
function linked(signal: AbortSignal | undefined): Link {
  const controller = new AbortController();
  if (signal === undefined) return { controller, release: () => {} };
  if (signal.aborted) controller.abort(signal.reason);
  const abort = () => controller.abort(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  return { controller, release: () => signal.removeEventListener("abort", abort) };
}

/** Calls `expire` after so many seconds, unless what it answers is called before. */
export function deadline(seconds: number | null, expire: () => void): () => void {
  if (seconds === null || seconds === Number.POSITIVE_INFINITY) return () => {};
  const timer = setTimeout(expire, Math.min(seconds * 1000, TIMER_MILLISECONDS_MAX));
  return () => clearTimeout(timer);
}

/** Waits; rejects with the signal's reason when it aborts. */
export function pause(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const end = () => {
      signal?.removeEventListener("abort", abort);
      resolve();
    };
    const stop = deadline(seconds, end);
    const abort = () => {
      stop();
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Reads one piece after the other; the error of a broken connection is a {@link ConnectionError}. */
export class BodyReader {
  readonly #answer: Answer;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

  constructor(answer: Answer) {
    this.#answer = answer;
    this.#reader = answer.response.body?.getReader();
  }

  /** The next piece; `undefined` at the end. */
  async read(): Promise<Uint8Array | undefined> {
    if (this.#reader === undefined) {
      this.#answer.release();
      return undefined;
    }
    try {
      const { value, done } = await this.#reader.read();
      if (!done) return value;
      this.#answer.release();
      return undefined;
    } catch (error) {
      this.#answer.release();
      throw this.#failure(error);
    }
  }

  /** Gives the rest up. */
  cancel(reason?: unknown): void {
    this.#answer.cancel(reason);
    // Its answer says only that it was aborted, which is known.
    this.#reader?.cancel().catch(() => {});
  }

  /** What an error of reading means. An abort, by the caller or by a deadline, keeps its reason. */
  #failure(error: unknown): unknown {
    const { url, signal } = this.#answer;
    return signal.aborted ? signal.reason : new ConnectionError(url, false, error);
  }
}

async function wholeBody(
  answer: Answer,
  what: string,
  most: number,
  limit: number | null,
): Promise<Uint8Array<ArrayBuffer>> {
  const reader = new BodyReader(answer);
  const stop = deadline(limit, () => reader.cancel(new TimeoutError(what, limit ?? 0)));
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    for (let piece = await reader.read(); piece !== undefined; piece = await reader.read()) {
      length += piece.length;
      if (length > most) {
        reader.cancel();
        throw new UnreadableError(what, `it is longer than ${most} bytes`);
      }
      pieces.push(piece);
    }
  } finally {
    stop();
  }
  return joined(pieces, length);
}

/** Pieces as one. */
export function joined(pieces: Uint8Array[], length: number): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** Statuses that come from gateways without a word of their own. */
const REASONS: Record<number, string> = {
  301: "Moved Permanently",
  302: "Found",
  307: "Temporary Redirect",
  308: "Permanent Redirect",
  400: "Bad Request",
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  408: "Request Timeout",
  413: "Content Too Large",
  429: "Too Many Requests",
  500: "Internal Server Error",
  502: "Bad Gateway",
  503: "Service Unavailable",
  504: "Gateway Timeout",
};

/** Reads an error in the forms of our servers, of the published ones and of proxies between. */
async function refusal(what: string, answer: Answer): Promise<ApiError> {
  const { status, headers } = answer.response;
  let text = "";
  try {
    text = new TextDecoder().decode(await wholeBody(answer, what, ERROR_BYTES_MAX, ERROR_SECONDS));
  } catch {
    // The status alone says enough.
  }
  const body = object(text);
  const field = (name: string) => (typeof body?.[name] === "string" ? (body[name] as string) : undefined);
  const details = Array.isArray(body?.["detail"]) ? body["detail"].map(detail) : [];
  const line = text.split("\n", 1)[0]?.trim() ?? "";
  // A page of HTML says less than the status.
  const plain = body === undefined && line !== "" && !line.startsWith("<") ? line : undefined;
  const seconds = Number(headers.get("Retry-After") ?? Number.NaN);
  return new ApiError({
    what,
    status,
    code: field("code") ?? "",
    message:
      field("message") ??
      field("detail") ??
      (details.length > 0 ? details.join("; ") : undefined) ??
      plain ??
      `the server answered ${REASONS[status] ?? `status ${status}`}`,
    requestId: headers.get(REQUEST_ID_HEADER) ?? field("request_id"),
    retryAfterSeconds: Number.isFinite(seconds) ? seconds : undefined,
    details,
  });
}

function object(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function detail(problem: { loc?: unknown[]; msg?: string }): string {
  return `${(problem.loc ?? []).join(".")}: ${problem.msg ?? ""}`;
}

/** An id as a segment of a path. What would lead to another path is refused. */
export function segment(id: string): string {
  if (id === "" || id === "." || id === "..") {
    throw new InvalidArgumentError(`${JSON.stringify(id)} is not an id`);
  }
  return encode(id);
}

/** A query from pairs; those without a value are left out. */
export function query(pairs: Iterable<[string, string | number | boolean | undefined]>): string {
  const parts: string[] = [];
  for (const [name, value] of pairs) {
    if (value !== undefined) parts.push(`${encode(name)}=${encode(String(value))}`);
  }
  return parts.join("&");
}

/** Everything but letters, digits and `-_.~`, which RFC 3986 leaves alone, is encoded. */
function encode(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}
