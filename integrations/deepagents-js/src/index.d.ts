import { BaseSandbox, type ExecuteResponse, type FileDownloadResponse, type FileUploadResponse } from "deepagents";
import type { Sandbox } from "opensandbox";

/** A sandbox as the backend of a deep agent. The sandbox is the caller's: this neither makes nor ends it. */
export declare class OsbSandbox extends BaseSandbox {
  constructor(sandbox: Sandbox, options?: { timeoutSeconds?: number });
  /** The sandbox's id. */
  readonly id: string;
  /** The sandbox. */
  readonly sandbox: Sandbox;
  execute(command: string): Promise<ExecuteResponse>;
  uploadFiles(files: Array<[string, Uint8Array]>): Promise<FileUploadResponse[]>;
  downloadFiles(paths: string[]): Promise<FileDownloadResponse[]>;
}
