// Who may use a server: API keys, tokens made from them, and tenants. Extensions of the protocol, for
// administrators, but for tokens.

import { type Abortable, segment, type Target } from "./transport.ts";
import type {
  CreateKeyRequest,
  CreateTokenRequest,
  ListKeysResponse,
  ListTenantsResponse,
  NewApiKey,
  Tenant,
} from "./wire.ts";

/** The API keys of a server. */
export class Keys {
  readonly #server: Target;

  /** @internal */
  constructor(server: Target) {
    this.#server = server;
  }

  /** All that the caller looks after, and tokens that are good. */
  async list(options: Abortable = {}): Promise<ListKeysResponse> {
    return this.#server.json("GET", "/keys", options);
  }

  /** Makes a key, whose value is shown this once. */
  async create(request: CreateKeyRequest, options: Abortable = {}): Promise<NewApiKey> {
    return this.#server.json("POST", "/keys", { ...options, json: request });
  }

  /** Gives a key a new value. What is open with the old one ends, and it is good for so many seconds more. */
  async rotate(id: string, options: Abortable & { graceSeconds?: number | undefined } = {}): Promise<NewApiKey> {
    const { signal, ...json } = options;
    return this.#server.json("POST", `/keys/${segment(id)}/rotate`, { json, signal });
  }

  /** Revokes a key with its tokens; what is open with them ends. */
  async revoke(id: string, options: Abortable = {}): Promise<void> {
    await this.#server.done("DELETE", `/keys/${segment(id)}`, options);
  }

  /** Makes a token from this client's own key: a key for a short time that may do no more. */
  async createToken(request: CreateTokenRequest = {}, options: Abortable = {}): Promise<NewApiKey> {
    return this.#server.json("POST", "/tokens", { ...options, json: request });
  }
}

/** The tenants of a server. */
export class Tenants {
  readonly #server: Target;

  /** @internal */
  constructor(server: Target) {
    this.#server = server;
  }

  /** All but the built-in one. */
  async list(options: Abortable = {}): Promise<ListTenantsResponse> {
    return this.#server.json("GET", "/tenants", options);
  }

  /** One of them. */
  async get(name: string, options: Abortable = {}): Promise<Tenant> {
    return this.#server.json("GET", `/tenants/${segment(name)}`, options);
  }

  /** Makes a tenant. */
  async create(name: string, options: Abortable = {}): Promise<Tenant> {
    return this.#server.json("POST", "/tenants", { ...options, json: { name } });
  }

  /** Removes a tenant that has nothing any more, with its keys. */
  async remove(name: string, options: Abortable = {}): Promise<void> {
    await this.#server.done("DELETE", `/tenants/${segment(name)}`, options);
  }
}
