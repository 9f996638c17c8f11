// Live shells that keep their variables, functions and directory between runs.

import { milliseconds, type RunOptions, watched } from "./commands.ts";
import { Execution, type Output } from "./execution.ts";
import type { Sandbox } from "./sandbox.ts";
import { type Abortable, segment } from "./transport.ts";
import type { CreateSessionResponse, RunInSessionRequest } from "./wire.ts";

/** How shell text runs in a session. */
export interface SessionRunOptions extends Pick<RunOptions, "signal" | "onStdout" | "onStderr"> {
  /** Where to run; the session goes on from there. */
  cwd?: string | undefined;
  /** End this run, not the session, after this time. */
  timeoutSeconds?: number | undefined;
}

/** The sessions of a sandbox. */
export class Sessions {
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /**
   * Starts a shell.
   *
   * ```ts
   * await using session = await sandbox.sessions.create();
   * await session.run("cd /tmp; name=value");
   * console.log((await session.run("echo $PWD $name")).stdout);
   * ```
   */
  async create(options: Abortable & { cwd?: string } = {}): Promise<Session> {
    const exec = await this.#sandbox.exec(options.signal);
    const request = options.cwd === undefined ? {} : { cwd: options.cwd };
    const made = await exec.json<CreateSessionResponse>("POST", "/session", { json: request, signal: options.signal });
    return this.get(made.session_id);
  }

  /** A session by its id, without any request. */
  get(id: string): Session {
    return new Session(this.#sandbox, id);
  }
}

/** A live shell. It ends with {@link Session.delete}, or when an `await using` block is left. */
export class Session {
  /** Its id. */
  readonly id: string;
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox, id: string) {
    this.#sandbox = sandbox;
    this.id = id;
  }

  /** Runs shell text in it to the end. */
  async run(command: string, options: SessionRunOptions = {}): Promise<Output> {
    return watched(await this.stream(command, options), options);
  }

  /** Runs shell text in it and answers its events as they come. */
  async stream(command: string, options: SessionRunOptions = {}): Promise<Execution> {
    const request: RunInSessionRequest = { command };
    if (options.cwd !== undefined) request.cwd = options.cwd;
    if (options.timeoutSeconds !== undefined) request.timeout = milliseconds(options.timeoutSeconds);
    const exec = await this.#sandbox.exec(options.signal);
    const path = `/session/${segment(this.id)}/run`;
    const answer = await exec.send("POST", path, { json: request, isEvents: true, signal: options.signal });
    return new Execution(answer, "session", exec, options.signal);
  }

  /** Interrupts what runs in it. */
  async interrupt(options: Abortable = {}): Promise<void> {
    await this.#sandbox.commands.interrupt(this.id, options);
  }

  /** Ends it. */
  async delete(options: Abortable = {}): Promise<void> {
    const exec = await this.#sandbox.exec(options.signal);
    await exec.done("DELETE", `/session/${segment(this.id)}`, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete();
  }
}
