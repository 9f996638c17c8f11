// Everything that can go wrong, as classes that say what happened and what to do next.
//
// Exit codes of commands and exceptions of code are not errors of the SDK: they are in the `Output`
// of the execution. A call that its caller aborts rejects with the reason of the `AbortSignal`.

/** The class of an error, for programs that switch over it. */
export type ErrorKind =
  | "api"
  | "connection"
  | "timeout"
  | "unreadable"
  | "stream_broken"
  | "not_ready"
  | "failed"
  | "config"
  | "invalid_argument"
  | "terminal"
  | "pool_empty"
  | "pool_closed";

interface ErrorFields {
  code: string;
  remedy: string;
  requestId?: string | undefined;
  cause?: unknown;
}

/** What every error of this package is. */
export abstract class OpenSandboxError extends Error {
  /** The class of the error. */
  abstract readonly kind: ErrorKind;
  /** The error's code: the server's own for an {@link ApiError}, else one of this package. */
  readonly code: string;
  /** What to do next. */
  readonly remedy: string;
  /** The id under which the server logged the request. */
  readonly requestId: string | undefined;

  constructor(message: string, fields: ErrorFields) {
    super(message, fields.cause === undefined ? undefined : { cause: fields.cause });
    this.name = new.target.name;
    this.code = fields.code;
    this.remedy = fields.remedy;
    this.requestId = fields.requestId;
  }

  /** The HTTP status, if an answer came: of this error, or of the one behind it. */
  get status(): number | undefined {
    return this.cause instanceof OpenSandboxError ? this.cause.status : undefined;
  }

  /** Whether what was asked for does not exist. */
  get isNotFound(): boolean {
    return this.status === 404;
  }

  /** Whether the key is missing, wrong, or may not do this. */
  get isUnauthorized(): boolean {
    return this.status === 401 || this.status === 403;
  }

  /**
   * Whether the same call may succeed later. Says nothing about whether repeating it is safe: the
   * SDK repeats by itself what is.
   */
  get isRetryable(): boolean {
    return this.status !== undefined && isPassing(this.status);
  }
}

/** Statuses that say "not now". */
export function isPassing(status: number): boolean {
  return status === 429 || status === 502 || status === 503;
}

/** What an {@link ApiError} is made of. */
export interface ApiErrorFields {
  what: string;
  status: number;
  code: string;
  message: string;
  requestId?: string | undefined;
  retryAfterSeconds?: number | undefined;
  details?: string[];
}

/** The server or the daemon in the sandbox answered with an error. */
export class ApiError extends OpenSandboxError {
  readonly kind = "api";
  /** The request: method and path. */
  readonly what: string;
  /** What happened, as the server says it, without the request and its id. */
  readonly reason: string;
  /** When to try again, if the server said so. */
  readonly retryAfterSeconds: number | undefined;
  /** Every problem of a request that failed validation. */
  readonly details: string[];
  readonly #status: number;

  constructor(fields: ApiErrorFields) {
    const code = fields.code === "" ? "" : `, ${fields.code}`;
    const request = fields.requestId === undefined ? "" : `, request ${fields.requestId}`;
    super(`${fields.message} (${fields.what}: ${fields.status}${code}${request})`, {
      code: fields.code,
      remedy: remedyOf(fields.status),
      requestId: fields.requestId,
    });
    this.what = fields.what;
    this.reason = fields.message;
    this.#status = fields.status;
    this.retryAfterSeconds = fields.retryAfterSeconds;
    this.details = fields.details ?? [];
  }

  override get status(): number {
    return this.#status;
  }
}

function remedyOf(status: number): string {
  switch (status) {
    case 400:
    case 422:
      return "correct the request as the message says";
    case 401:
    case 403:
      return "check the API key: OPEN_SANDBOX_API_KEY, or apiKey of the connection";
    case 404:
      return "check the id or path; a sandbox is gone when its lifetime is over";
    case 409:
      return "look at the state of what this is about, which does not allow it now";
    case 410:
      return "begin again: what was asked for is no longer kept";
    case 429:
    case 502:
    case 503:
    case 504:
      return "try again later";
    case 501:
      return "use another server or backend: this one does not do that";
    default:
      return "look for the request id in the server's log";
  }
}

/** No answer came: the other side cannot be reached, or the connection broke. */
export class ConnectionError extends OpenSandboxError {
  readonly kind = "connection";
  /** Where the request went, without its query. */
  readonly url: string;
  /** Whether the request certainly did not arrive, so that repeating it is safe. */
  readonly isUnsent: boolean;

  constructor(url: string, isUnsent: boolean, cause: unknown) {
    const why = networkReason(cause);
    const remedy = "check the domain and that the server runs";
    super(`${url} cannot be reached${why === "" ? "" : `: ${why}`}; ${remedy}`, {
      code: "CONNECTION_FAILED",
      remedy,
      cause,
    });
    this.url = url;
    this.isUnsent = isUnsent;
  }

  override get isRetryable(): boolean {
    return true;
  }
}

/** The innermost message, which names the cause where `fetch` says only that it failed. */
function networkReason(cause: unknown): string {
  let reason = "";
  for (let error = cause; error instanceof Error; error = error.cause) {
    if (error.message !== "") reason = error.message;
  }
  return reason;
}

/** No answer came in time. */
export class TimeoutError extends OpenSandboxError {
  readonly kind = "timeout";
  /** What was waited for. */
  readonly what: string;
  /** For how long. */
  readonly afterSeconds: number;

  constructor(what: string, afterSeconds: number) {
    super(`${what} took longer than ${afterSeconds} s`, {
      code: "TIMEOUT",
      remedy: "allow more time, or look at what keeps the server or the sandbox busy",
    });
    this.what = what;
    this.afterSeconds = afterSeconds;
  }

  override get isRetryable(): boolean {
    return true;
  }
}

/** An answer is not what the protocol says. */
export class UnreadableError extends OpenSandboxError {
  readonly kind = "unreadable";

  constructor(what: string, message: string, remedy?: string, cause?: unknown) {
    const question = remedy === undefined ? "; is this an OpenSandbox server?" : "";
    super(`the answer of ${what} is not readable: ${message}${question}`, {
      code: "UNREADABLE",
      remedy: remedy ?? "check that the domain leads to an OpenSandbox server",
      cause,
    });
  }
}

/** A stream of events ended before its last event and could not be taken up again. */
export class StreamBrokenError extends OpenSandboxError {
  readonly kind = "stream_broken";
  /** The command, session or context. */
  readonly what: string;

  constructor(what: string, message: string, cause?: unknown) {
    super(`the stream of ${what} broke off: ${message}`, {
      code: "STREAM_BROKEN",
      remedy: "ask for the status of the command; run in the background what must outlive a connection",
      requestId: cause instanceof OpenSandboxError ? cause.requestId : undefined,
      cause,
    });
    this.what = what;
  }
}

/** A sandbox was not ready in time. */
export class NotReadyError extends OpenSandboxError {
  readonly kind = "not_ready";
  /** The sandbox. */
  readonly sandboxId: string;

  constructor(sandboxId: string, afterSeconds: number, cause?: unknown) {
    super(`sandbox ${sandboxId} was not ready after ${afterSeconds} s`, {
      code: "NOT_READY",
      remedy: "look at its diagnostics, or wait longer with readyTimeoutSeconds",
      requestId: cause instanceof OpenSandboxError ? cause.requestId : undefined,
      cause,
    });
    this.sandboxId = sandboxId;
  }
}

/** A sandbox or snapshot got into a state from which what was waited for never comes. */
export class FailedError extends OpenSandboxError {
  readonly kind = "failed";
  /** The sandbox, snapshot or command. */
  readonly subject: string;
  /** Its state. */
  readonly state: string;

  constructor(subject: string, state: string, message: string, cause?: OpenSandboxError) {
    super(`${subject} is ${state}${message === "" ? "" : `: ${message}`}`, {
      code: "FAILED",
      requestId: cause?.requestId,
      cause,
      remedy: state === "Paused" || state === "Pausing" ? "resume it first" : "look at its diagnostics and make another",
    });
    this.subject = subject;
    this.state = state;
  }
}

/** The connection's settings are not usable. */
export class ConfigError extends OpenSandboxError {
  readonly kind = "config";
  /** Where the setting stands: a variable, a file, a field. */
  readonly origin: string;

  constructor(origin: string, message: string, cause?: unknown) {
    super(`${origin}: ${message}`, { code: "CONFIG", remedy: `correct ${origin}`, cause });
    this.origin = origin;
  }
}

/** A call makes no sense, and nothing was sent. */
export class InvalidArgumentError extends OpenSandboxError {
  readonly kind = "invalid_argument";

  constructor(message: string) {
    super(message, { code: "INVALID_ARGUMENT", remedy: "correct the argument" });
  }
}

/** A terminal's connection failed. */
export class TerminalError extends OpenSandboxError {
  readonly kind = "terminal";

  constructor(message: string, remedy = "connect again; `since` replays what was missed", cause?: unknown) {
    super(`the terminal's connection failed: ${message}`, { code: "TERMINAL", remedy, cause });
  }
}

/** The pool has no idle sandbox and its policy is not to make one. */
export class PoolEmptyError extends OpenSandboxError {
  readonly kind = "pool_empty";

  constructor(cause?: unknown) {
    super("the pool has no idle sandbox", {
      code: "POOL_EMPTY",
      remedy: "wait, make it larger, or let it create on demand",
      cause,
    });
  }

  override get isRetryable(): boolean {
    return true;
  }
}

/** The pool was shut down. */
export class PoolClosedError extends OpenSandboxError {
  readonly kind = "pool_closed";

  constructor() {
    super("the pool is shut down", { code: "POOL_CLOSED", remedy: "start another" });
  }
}
