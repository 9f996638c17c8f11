// What a sandbox may reach, and the credentials that are put into its requests on the way out. Both
// are asked of the sandbox's egress API.

import type { Sandbox } from "./sandbox.ts";
import { type Abortable, segment } from "./transport.ts";
import type {
  CredentialBindingListResponse,
  CredentialBindingMetadata,
  CredentialListResponse,
  CredentialMetadata,
  CredentialVaultCreateRequest,
  CredentialVaultMutationRequest,
  CredentialVaultState,
  NetworkPolicy,
  NetworkRule,
  PolicyStatusResponse,
} from "./wire.ts";

const VAULT = "/credential-vault";

/** What a sandbox may reach. */
export class Egress {
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** The policy. */
  async policy(options: Abortable = {}): Promise<PolicyStatusResponse> {
    return (await this.#sandbox.egressApi(options.signal)).json("GET", "/policy", options);
  }

  /** Replaces the policy. */
  async set(policy: NetworkPolicy, options: Abortable = {}): Promise<PolicyStatusResponse> {
    return (await this.#sandbox.egressApi(options.signal)).json("PUT", "/policy", { ...options, json: policy });
  }

  /** Puts rules before the others. */
  async patch(rules: NetworkRule[], options: Abortable = {}): Promise<PolicyStatusResponse> {
    return (await this.#sandbox.egressApi(options.signal)).json("PATCH", "/policy", { ...options, json: rules });
  }

  /** Removes the rules of these targets. */
  async delete(targets: string[], options: Abortable = {}): Promise<PolicyStatusResponse> {
    return (await this.#sandbox.egressApi(options.signal)).json("DELETE", "/policy", { ...options, json: targets });
  }
}

/** Credentials of a sandbox. */
export class CredentialVault {
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** Makes the vault. */
  async create(request: CredentialVaultCreateRequest, options: Abortable = {}): Promise<CredentialVaultState> {
    return (await this.#sandbox.egressApi(options.signal)).json("POST", VAULT, { ...options, json: request });
  }

  /** The vault, without any secret. */
  async get(options: Abortable = {}): Promise<CredentialVaultState> {
    return (await this.#sandbox.egressApi(options.signal)).json("GET", VAULT, options);
  }

  /** Changes the vault, all or nothing. */
  async patch(request: CredentialVaultMutationRequest, options: Abortable = {}): Promise<CredentialVaultState> {
    return (await this.#sandbox.egressApi(options.signal)).json("PATCH", VAULT, { ...options, json: request });
  }

  /** Removes the vault. */
  async delete(options: Abortable = {}): Promise<void> {
    await (await this.#sandbox.egressApi(options.signal)).done("DELETE", VAULT, options);
  }

  /** Its credentials, without any secret. */
  async credentials(options: Abortable = {}): Promise<CredentialListResponse> {
    return (await this.#sandbox.egressApi(options.signal)).json("GET", `${VAULT}/credentials`, options);
  }

  /** One credential, without any secret. */
  async credential(name: string, options: Abortable = {}): Promise<CredentialMetadata> {
    return (await this.#sandbox.egressApi(options.signal)).json("GET", `${VAULT}/credentials/${segment(name)}`, options);
  }

  /** Its bindings. */
  async bindings(options: Abortable = {}): Promise<CredentialBindingListResponse> {
    return (await this.#sandbox.egressApi(options.signal)).json("GET", `${VAULT}/bindings`, options);
  }

  /** One binding. */
  async binding(name: string, options: Abortable = {}): Promise<CredentialBindingMetadata> {
    return (await this.#sandbox.egressApi(options.signal)).json("GET", `${VAULT}/bindings/${segment(name)}`, options);
  }
}
