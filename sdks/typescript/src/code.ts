// Code that remembers: contexts, and cells that run in them.

import { milliseconds, type RunOptions, watched } from "./commands.ts";
import { Execution, type Output } from "./execution.ts";
import type { Sandbox } from "./sandbox.ts";
import { type Abortable, query, segment } from "./transport.ts";
import type { CodeContext, CodeContextRequest, ContextRef, RunCodeRequest } from "./wire.ts";

/** How code runs. */
export interface CodeOptions extends Pick<RunOptions, "signal" | "onStdout" | "onStderr"> {
  /** In the default context of this language. */
  language?: string | undefined;
  /** In this context. */
  context?: string | { id: string } | undefined;
  /** Extension: interrupt it after this time. */
  timeoutSeconds?: number | undefined;
}

/** How a context is made. */
export interface ContextOptions extends Abortable {
  /** Its working directory. */
  cwd?: string | undefined;
  /** Extension: the environment of its interpreter, over everything else. */
  env?: Record<string, string> | undefined;
}

/** The code of a sandbox. */
export class Code {
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /**
   * Runs code in the default context of its language, or in one that is chosen. An exception of the
   * code is no error: look at `error` of the output.
   *
   * ```ts
   * await sandbox.code.run("x = 20");
   * console.log((await sandbox.code.run("x + 1")).text);
   * ```
   */
  async run(code: string, options: CodeOptions = {}): Promise<Output> {
    return watched(await this.stream(code, options), options);
  }

  /** Starts code and answers its events as they come. */
  async stream(code: string, options: CodeOptions = {}): Promise<Execution> {
    const request: RunCodeRequest = { code };
    const place: ContextRef = {};
    if (options.language !== undefined) place.language = options.language;
    if (options.context !== undefined) {
      place.id = typeof options.context === "string" ? options.context : options.context.id;
    }
    if (place.language !== undefined || place.id !== undefined) request.context = place;
    if (options.timeoutSeconds !== undefined) request.timeout = milliseconds(options.timeoutSeconds);
    const exec = await this.#sandbox.exec(options.signal);
    const answer = await exec.send("POST", "/code", { json: request, isEvents: true, signal: options.signal });
    return new Execution(answer, "context", exec, options.signal);
  }

  /** Makes a context of a language. */
  async createContext(language: string, options: ContextOptions = {}): Promise<CodeContext> {
    const request: CodeContextRequest = { language };
    if (options.cwd !== undefined) request.cwd = options.cwd;
    if (options.env !== undefined) request.envs = options.env;
    const exec = await this.#sandbox.exec(options.signal);
    return exec.json("POST", "/code/context", { json: request, signal: options.signal });
  }

  /** A context. */
  async getContext(id: string, options: Abortable = {}): Promise<CodeContext> {
    const exec = await this.#sandbox.exec(options.signal);
    return exec.json("GET", `/code/contexts/${segment(id)}`, options);
  }

  /** The contexts, of one language if given. */
  async listContexts(language?: string, options: Abortable = {}): Promise<CodeContext[]> {
    const exec = await this.#sandbox.exec(options.signal);
    return exec.json("GET", "/code/contexts", { query: query([["language", language]]), signal: options.signal });
  }

  /** Ends a context. */
  async deleteContext(id: string, options: Abortable = {}): Promise<void> {
    const exec = await this.#sandbox.exec(options.signal);
    await exec.done("DELETE", `/code/contexts/${segment(id)}`, options);
  }

  /** Ends the contexts of a language. */
  async deleteContexts(language: string, options: Abortable = {}): Promise<void> {
    const exec = await this.#sandbox.exec(options.signal);
    await exec.done("DELETE", "/code/contexts", { query: query([["language", language]]), signal: options.signal });
  }

  /** Interrupts what runs in a context, which is named by the id of the event `started`. */
  async interrupt(id: string, options: Abortable = {}): Promise<void> {
    const exec = await this.#sandbox.exec(options.signal);
    await exec.done("DELETE", "/code", { query: query([["id", id]]), signal: options.signal });
  }
}
