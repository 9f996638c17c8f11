// Where the server is and how to speak to it: given, from the environment, from the file that the
// command line uses, or the defaults, in this order. Browsers have neither environment nor file.

import { ConfigError } from "./errors.ts";
import { builtin, variable } from "./runtime.ts";
import { parseToml, type TomlValue } from "./toml.ts";

/** The variable that carries the API key. */
export const ENV_API_KEY = "OPEN_SANDBOX_API_KEY";
/** The variable that says where the server is. */
export const ENV_DOMAIN = "OPEN_SANDBOX_DOMAIN";
/** The variable that says `http` or `https`. */
export const ENV_PROTOCOL = "OPEN_SANDBOX_PROTOCOL";
/** The variable that says how many seconds an answer may take. */
export const ENV_REQUEST_TIMEOUT = "OPEN_SANDBOX_REQUEST_TIMEOUT";
/** The variable that says whether sandboxes are reached through the server. */
export const ENV_USE_SERVER_PROXY = "OPEN_SANDBOX_USE_SERVER_PROXY";

/** Where a server listens that nothing was said about. */
export const DEFAULT_DOMAIN = "localhost:8080";
/** How long an answer may take, as in the other SDKs. */
export const DEFAULT_REQUEST_TIMEOUT_SECONDS = 30;
/** The version of this package. */
export const VERSION = "0.1.0";

/** When a request is sent again. Only requests that change nothing, or that did certainly not arrive, are. */
export interface RetryPolicy {
  /** Attempts after the first; 0 is none. */
  attempts: number;
  /** The shortest wait between two attempts. */
  firstDelaySeconds: number;
  /** The longest wait between two attempts, also when the server asks for more. */
  longestDelaySeconds: number;
}

/** Three more attempts, half a second to half a minute apart, as in the other SDKs. */
export const DEFAULT_RETRY: Readonly<RetryPolicy> = {
  attempts: 3,
  firstDelaySeconds: 0.5,
  longestDelaySeconds: 30,
};

/** Where the server is and how to speak to it. */
export interface ConnectionOptions {
  /** The API key. */
  apiKey?: string | undefined;
  /** `host[:port]`, or with a scheme, which then decides. */
  domain?: string | undefined;
  /** How the server is spoken to, unless the domain says so. */
  protocol?: "http" | "https" | undefined;
  /** How long an answer may take. Streams last as long as they last. */
  requestTimeoutSeconds?: number | undefined;
  /** Whether sandboxes are reached through the server, for where they cannot be reached straight. */
  useServerProxy?: boolean | undefined;
  /** Headers of every request. */
  headers?: Record<string, string> | undefined;
  /** How the program calls itself. Browsers send their own. */
  userAgent?: string | undefined;
  /** When a request is sent again. */
  retry?: Partial<RetryPolicy> | undefined;
  /** Instead of the runtime's own `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
}

/** Settings that were looked up and checked. */
export class ConnectionConfig {
  readonly domain: string;
  readonly protocol: "http" | "https";
  readonly requestTimeoutSeconds: number;
  readonly useServerProxy: boolean;
  readonly headers: Readonly<Record<string, string>>;
  readonly userAgent: string;
  readonly retry: Readonly<RetryPolicy>;
  readonly fetch: typeof globalThis.fetch;
  /** Whether `fetch` was given. */
  readonly hasOwnFetch: boolean;
  // Private, so that no log of the settings shows it.
  readonly #apiKey: string | undefined;

  /** These settings over the defaults. Looks at no environment and no file. */
  constructor(options: ConnectionOptions = {}) {
    this.domain = options.domain ?? DEFAULT_DOMAIN;
    this.protocol = protocolOf(options.protocol ?? "http", "protocol");
    this.requestTimeoutSeconds = options.requestTimeoutSeconds ?? DEFAULT_REQUEST_TIMEOUT_SECONDS;
    if (!(this.requestTimeoutSeconds > 0)) {
      throw new ConfigError("requestTimeoutSeconds", `${this.requestTimeoutSeconds} is not a time above 0`);
    }
    this.useServerProxy = options.useServerProxy ?? false;
    this.headers = checkedHeaders(options.headers ?? {});
    this.userAgent = options.userAgent ?? `opensandbox-typescript/${VERSION}`;
    this.retry = { ...DEFAULT_RETRY, ...options.retry };
    // Called without a receiver: a browser's `fetch` refuses any other than the global object.
    const own = options.fetch;
    this.hasOwnFetch = own !== undefined;
    this.fetch = own ?? ((input, init) => globalThis.fetch(input, init));
    this.#apiKey = options.apiKey === "" ? undefined : options.apiKey;
    if (this.#apiKey !== undefined) checkHeader("apiKey", this.#apiKey);
    checkHeader("userAgent", this.userAgent);
  }

  /**
   * The given settings over the environment over the file of the command line over the defaults. A
   * file that is not there is no error, one that cannot be read is.
   */
  static load(options: ConnectionOptions = {}): ConnectionConfig {
    const file = ConnectionConfig.defaultFile();
    const kept = file === undefined ? {} : (readFile(file, true) ?? {});
    return new ConnectionConfig({ ...kept, ...environment(), ...given(options) });
  }

  /** A file over the defaults. Only in Node, Bun and Deno. */
  static fromFile(path: string): ConnectionConfig {
    return new ConnectionConfig(readFile(path, false));
  }

  /** Where the command line keeps its settings: `~/.opensandbox/config.toml`. */
  static defaultFile(): string | undefined {
    const home = variable("HOME");
    return home === undefined || home === "" ? undefined : `${home}/.opensandbox/config.toml`;
  }

  /** The API key. */
  get apiKey(): string | undefined {
    return this.#apiKey;
  }

  /** Where requests to the server go: `https://example.com/v1`. */
  get baseUrl(): string {
    return `${this.rootUrl}/v1`;
  }

  /** Where the server is, without the version: `https://example.com`. */
  get rootUrl(): string {
    const domain = this.domain.trim().replace(/\/+$/, "");
    const url = /^https?:\/\//.test(domain) ? domain : `${this.protocol}://${domain}`;
    let host = "";
    try {
      host = new URL(url).host;
    } catch {
      // Told below, with what would be right.
    }
    if (host === "" || /\s/.test(domain)) {
      throw new ConfigError("domain", `${JSON.stringify(domain)} is not host[:port]`);
    }
    return url;
  }

  /** The scheme of endpoints, which come without one. */
  get scheme(): "http" | "https" {
    const domain = this.domain.trim();
    if (domain.startsWith("https://")) return "https";
    return domain.startsWith("http://") ? "http" : this.protocol;
  }
}

/** A header's name is a token and its value has no line end (RFC 9110): what has would begin another header. */
function checkedHeaders(headers: Record<string, string>): Record<string, string> {
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) throw new ConfigError("headers", `${JSON.stringify(name)} is no name of a header`);
    checkHeader(`headers.${name}`, value);
  }
  return { ...headers };
}

function checkHeader(origin: string, value: string): void {
  // Not repeated in the error: any of them may be a credential.
  if (/[^\t\x20-\x7e\x80-\xff]/.test(value)) throw new ConfigError(origin, "it has a character that no header can carry");
}

/** Without what was given as `undefined`, which must not hide the environment. */
function given(options: ConnectionOptions): ConnectionOptions {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/** The settings of the environment. */
export function environment(lookUp: (name: string) => string | undefined = variable): ConnectionOptions {
  // An empty variable is as good as none, as in the other SDKs.
  const value = (name: string) => {
    const text = lookUp(name)?.trim();
    return text === "" ? undefined : text;
  };
  const options: ConnectionOptions = {};
  const apiKey = value(ENV_API_KEY);
  if (apiKey !== undefined) options.apiKey = apiKey;
  const domain = value(ENV_DOMAIN);
  if (domain !== undefined) options.domain = domain;
  const protocol = value(ENV_PROTOCOL);
  if (protocol !== undefined) options.protocol = protocolOf(protocol, ENV_PROTOCOL);
  // What is not a number or not yes or no is passed over, as in the command line.
  const seconds = Number(value(ENV_REQUEST_TIMEOUT));
  if (seconds > 0) options.requestTimeoutSeconds = seconds;
  const proxy = flag(value(ENV_USE_SERVER_PROXY));
  if (proxy !== undefined) options.useServerProxy = proxy;
  return options;
}

function flag(text: string | undefined): boolean | undefined {
  const lower = text?.toLowerCase() ?? "";
  if (["1", "true", "yes", "on"].includes(lower)) return true;
  return ["0", "false", "no", "off"].includes(lower) ? false : undefined;
}

function protocolOf(text: string, origin: string): "http" | "https" {
  const lower = text.toLowerCase();
  if (lower === "http" || lower === "https") return lower;
  throw new ConfigError(origin, `${JSON.stringify(text)} is neither http nor https`);
}

interface FileSystem {
  readFileSync(path: string, encoding: "utf8"): string;
}

function readFile(path: string, mayBeMissing: boolean): ConnectionOptions | undefined {
  const fs = builtin<FileSystem>("node:fs");
  if (fs === undefined) {
    if (mayBeMissing) return undefined;
    throw new ConfigError(path, "this runtime has no files; give the settings themselves");
  }
  let text: string;
  try {
    text = fs.readFileSync(path, "utf8");
  } catch (error) {
    const code = (error as { code?: string; name?: string }).code ?? (error as Error).name;
    // Deno without --allow-read answers NotCapable.
    if (mayBeMissing && (code === "ENOENT" || code === "ENOTDIR" || code === "NotCapable")) return undefined;
    throw new ConfigError(path, (error as Error).message, error);
  }
  return fromToml(path, text);
}

/** The part of the file that is about the connection; the rest is for the command line. */
export function fromToml(path: string, text: string): ConnectionOptions {
  const wrong = (message: string) => new ConfigError(path, message);
  let file: Record<string, TomlValue>;
  try {
    file = parseToml(text);
  } catch (error) {
    throw new ConfigError(path, (error as Error).message, error);
  }
  const connection = file["connection"] ?? {};
  if (typeof connection !== "object" || Array.isArray(connection)) throw wrong("connection is not a table");
  const options: ConnectionOptions = {};
  const typed = <T extends "string" | "number" | "boolean">(name: string, type: T) => {
    const value = connection[name];
    if (value !== undefined && typeof value !== type) throw wrong(`connection.${name} is not a ${type}`);
    return value;
  };
  const apiKey = typed("api_key", "string") as string | undefined;
  if (apiKey !== undefined) options.apiKey = apiKey;
  const domain = typed("domain", "string") as string | undefined;
  if (domain !== undefined) options.domain = domain;
  const protocol = typed("protocol", "string") as string | undefined;
  if (protocol !== undefined) options.protocol = protocolOf(protocol, path);
  const seconds = typed("request_timeout", "number") as number | undefined;
  if (seconds !== undefined && seconds > 0) options.requestTimeoutSeconds = seconds;
  const proxy = typed("use_server_proxy", "boolean") as boolean | undefined;
  if (proxy !== undefined) options.useServerProxy = proxy;
  return options;
}
