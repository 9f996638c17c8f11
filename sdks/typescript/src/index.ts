// Sandboxes for AI agents, from JavaScript and TypeScript. What is exported here is the package's
// promise; everything else may change.

export { Client, type SandboxFilter, type SnapshotFilter, type WaitOptions } from "./client.ts";
export { Code, type CodeOptions, type ContextOptions } from "./code.ts";
export { Commands, type CommandOptions, type CommandStatus, type Logs, type RunOptions } from "./commands.ts";
export {
  ConnectionConfig,
  type ConnectionOptions,
  DEFAULT_DOMAIN,
  DEFAULT_REQUEST_TIMEOUT_SECONDS,
  DEFAULT_RETRY,
  ENV_API_KEY,
  ENV_DOMAIN,
  ENV_PROTOCOL,
  ENV_REQUEST_TIMEOUT,
  ENV_USE_SERVER_PROXY,
  type RetryPolicy,
  VERSION,
} from "./config.ts";
export { type ConnectOptions, READY_TIMEOUT_SECONDS, type ReadyOptions } from "./connect.ts";
export type { Contents, WriteFile } from "./contents.ts";
export { type CreateOptions, DEFAULT_LIFETIME_SECONDS, hostVolume, namedVolume, type SandboxSource } from "./create.ts";
export type { DownloadedDirectory } from "./directories.ts";
export { CredentialVault, Egress } from "./egress.ts";
export {
  ApiError,
  ConfigError,
  ConnectionError,
  type ErrorKind,
  FailedError,
  InvalidArgumentError,
  NotReadyError,
  OpenSandboxError,
  PoolClosedError,
  PoolEmptyError,
  StreamBrokenError,
  TerminalError,
  TimeoutError,
  UnreadableError,
} from "./errors.ts";
export {
  type ActOptions,
  Desktop,
  type DesktopAction,
  type DesktopInfo,
  type DesktopWindow,
  type MouseButton,
  type PictureOptions,
  type Region,
} from "./desktop.ts";
export { type Ending, Execution, type ExecutionEvent, type ExecutionFailure, Output } from "./execution.ts";
export { type FileInfo, Files, type Permission, type WriteOptions } from "./files.ts";
export { type AuditFilter, Operator, type TemplateFilter } from "./operator.ts";
export { Pool, type PoolOptions, type PoolStatus } from "./pool.ts";
export {
  type NewTerminal,
  Terminal,
  TerminalConnection,
  type TerminalEvent,
  type TerminalOptions,
  Terminals,
  type TerminalSize,
} from "./pty.ts";
export { type Figure, type ResultKind, RichResult } from "./results.ts";
export { type Metrics, Sandbox } from "./sandbox.ts";
export { Session, type SessionRunOptions, Sessions } from "./sessions.ts";
export { Images, type PullOptions, Volumes } from "./inventory.ts";
export { Keys, Tenants } from "./access.ts";
export { ByteStream, ValueStream } from "./streams.ts";
export type { Abortable } from "./transport.ts";
export { Tunnel } from "./tunnel.ts";
export type * as wire from "./wire.ts";
