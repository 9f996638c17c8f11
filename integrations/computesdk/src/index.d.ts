import type { Provider } from "@computesdk/provider";
import type { ConnectionConfig, ConnectionOptions, CreateOptions, Sandbox, Snapshot } from "opensandbox";

/** How sandboxes are made that nothing else was said about. */
export interface OpenSandboxProviderConfig {
  /** Where the server is, over the environment and the command line's file. */
  connection?: ConnectionOptions | ConnectionConfig;
  /** The image, unless `create` names one, a snapshot or a template. */
  image?: string;
  /** How long a sandbox lives, in milliseconds; ten minutes unless said. */
  timeout?: number;
  /** Anything else that the SDK can say of a sandbox; `create` takes the same. */
  opensandbox?: CreateOptions;
}

/** The provider: `compute({ provider: opensandbox({ image: "python:3.12" }) })`. */
export declare function opensandbox(config?: OpenSandboxProviderConfig): Provider<Sandbox, never, Snapshot>;
