// Commands in a sandbox: to the end, as a stream, or in the background.

import { FailedError, InvalidArgumentError, StreamBrokenError } from "./errors.ts";
import { Execution, Output } from "./execution.ts";
import type { Sandbox } from "./sandbox.ts";
import { ByteStream } from "./streams.ts";
import { type Abortable, query, segment } from "./transport.ts";
import type { CommandStatusResponse, RunCommandRequest, StdinResponse } from "./wire.ts";

/** Answers the byte offset to read logs from next. */
const LOGS_CURSOR_HEADER = "EXECD-COMMANDS-TAIL-CURSOR";

/** How a command runs. */
export interface CommandOptions extends Abortable {
  /** Its working directory. */
  cwd?: string | undefined;
  /** Its environment, over everything else. */
  env?: Record<string, string> | undefined;
  /** Kill it after this time. */
  timeoutSeconds?: number | undefined;
  /** Run it as this user. */
  uid?: number | undefined;
  /** Run it as this group; needs a user as well. */
  gid?: number | undefined;
  /** Extension: text for its stdin, which then ends unless it is kept open. */
  stdin?: string | undefined;
  /** Extension: keeps its stdin open for {@link Commands.writeStdin}. */
  stdinOpen?: boolean | undefined;
}

/** How a command that runs to its end is watched. */
export interface RunOptions extends CommandOptions {
  /** Called with output as it comes. */
  onStdout?: ((text: string) => void) | undefined;
  /** Called with error output as it comes. */
  onStderr?: ((text: string) => void) | undefined;
}

/** Output of a command so far. */
export interface Logs {
  /** The output from the cursor on. */
  text: string;
  /** Where to read on. */
  cursor: number | undefined;
}

/** How a command is going. */
export interface CommandStatus {
  /** The command's id. */
  id: string;
  /** What was asked to run. */
  content: string;
  /** Whether it still runs. */
  isRunning: boolean;
  /** How it ended; -1 for a signal, 255 when it did not start. */
  exitCode: number | undefined;
  /** Why it failed, where there is more to say than the code. */
  error: string | undefined;
  startedAt: Date;
  finishedAt: Date | undefined;
}

/** The commands of a sandbox. */
export class Commands {
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /**
   * Runs shell text, or a program with its arguments without a shell, to its end. What ends with
   * another code than 0 is no error: look at `exitCode`. Aborting stops waiting; the command goes
   * on until it is interrupted or its time is over.
   *
   * ```ts
   * const output = await sandbox.commands.run("ls -l | wc -l", { cwd: "/tmp" });
   * console.log(output.stdout.trim(), output.exitCode);
   * ```
   */
  async run(command: string | string[], options: RunOptions = {}): Promise<Output> {
    const execution = await this.stream(command, options);
    return watched(execution, options);
  }

  /** Starts a command and answers its events as they come. */
  async stream(command: string | string[], options: CommandOptions = {}): Promise<Execution> {
    return this.#start(command, options, false);
  }

  /** Starts a command in the background and answers its id. */
  async background(command: string | string[], options: CommandOptions = {}): Promise<string> {
    const execution = await this.#start(command, options, true);
    const output = await execution.output();
    if (output.error !== undefined) throw new FailedError("the command", "not started", output.error.value);
    if (output.id === undefined) throw new StreamBrokenError("a background command", "it ended without the command's id");
    return output.id;
  }

  async #start(command: string | string[], options: CommandOptions, background: boolean): Promise<Execution> {
    const request: RunCommandRequest = {
      ...(typeof command === "string" ? { command } : { argv: command }),
      background,
    };
    if (options.cwd !== undefined) request.cwd = options.cwd;
    if (options.env !== undefined) request.envs = options.env;
    if (options.timeoutSeconds !== undefined) request.timeout = milliseconds(options.timeoutSeconds);
    if (options.uid !== undefined) request.uid = options.uid;
    if (options.gid !== undefined) request.gid = options.gid;
    if (options.stdin !== undefined) request.stdin = options.stdin;
    if (options.stdinOpen === true) request.stdin_open = true;
    const exec = await this.#sandbox.exec(options.signal);
    const answer = await exec.send("POST", "/command", { json: request, isEvents: true, signal: options.signal });
    return new Execution(answer, "command", exec, options.signal);
  }

  /** How a command is going. */
  async status(id: string, options: Abortable = {}): Promise<CommandStatus> {
    const exec = await this.#sandbox.exec(options.signal);
    return statusOf(await exec.json("GET", `/command/status/${segment(id)}`, options));
  }

  /** Extension: the commands that the daemon still knows. */
  async list(options: Abortable = {}): Promise<CommandStatus[]> {
    const exec = await this.#sandbox.exec(options.signal);
    return (await exec.json<CommandStatusResponse[]>("GET", "/command", options)).map(statusOf);
  }

  /** Waits until a command has ended, also one that runs in the background, and answers how. */
  async wait(id: string, options: Abortable = {}): Promise<CommandStatus> {
    const execution = await this.follow(id, 0, options);
    // Only its end is of interest; the events before are let pass.
    for await (const event of execution) if (event.type === "completed") break;
    return this.status(id, options);
  }

  /** Output of a command from a cursor on; nothing is from its beginning. */
  async logs(id: string, cursor?: number, options: Abortable = {}): Promise<Logs> {
    const exec = await this.#sandbox.exec(options.signal);
    const answer = await exec.send("GET", `/command/${segment(id)}/logs`, {
      query: query([["cursor", cursor]]),
      signal: options.signal,
    });
    const next = answer.response.headers.get(LOGS_CURSOR_HEADER);
    const text = new TextDecoder().decode(await new ByteStream(answer).bytes());
    return { text, cursor: next === null || next === "" ? undefined : Number(next) };
  }

  /** Interrupts a command, or what runs in a session. */
  async interrupt(id: string, options: Abortable = {}): Promise<void> {
    const exec = await this.#sandbox.exec(options.signal);
    await exec.done("DELETE", "/command", { query: query([["id", id]]), signal: options.signal });
  }

  /**
   * Extension: writes to the stdin of a command that was started with `stdinOpen`; `close` ends its
   * input. Answers how many bytes it took.
   */
  async writeStdin(
    id: string,
    input: string | Uint8Array<ArrayBuffer>,
    options: Abortable & { close?: boolean } = {},
  ): Promise<number> {
    const exec = await this.#sandbox.exec(options.signal);
    const answer = await exec.json<StdinResponse>("POST", `/command/${segment(id)}/stdin`, {
      query: query([["close", options.close === true]]),
      body: typeof input === "string" ? new TextEncoder().encode(input) : input,
      // A command that does not read holds its writer up for as long as it likes.
      timeoutSeconds: null,
      signal: options.signal,
    });
    return answer.written;
  }

  /**
   * Extension: follows a command, also one that runs in the background, from the event after
   * `after` on; 0 is from its beginning.
   */
  async follow(id: string, after = 0, options: Abortable = {}): Promise<Execution> {
    const exec = await this.#sandbox.exec(options.signal);
    const answer = await exec.send("GET", `/command/${segment(id)}/events`, {
      query: query([["after", after]]),
      isEvents: true,
      signal: options.signal,
    });
    return new Execution(answer, "command", exec, options.signal, id, after);
  }

  /**
   * Makes variables part of the environment of every command from now on, by adding them to the
   * file that the daemon reads.
   */
  async setEnv(variables: Record<string, string>, options: Abortable = {}): Promise<void> {
    let lines = "";
    for (const [name, value] of Object.entries(variables)) {
      if (!/^\w+$/.test(name) || value.includes("\n")) {
        throw new InvalidArgumentError(
          `${JSON.stringify(name)} cannot be kept: a name has letters, digits and _, and a value is one line`,
        );
      }
      lines += `${name}=${value}\n`;
    }
    const file = "${EXECD_ENVS:-/opt/opensandbox/.env}";
    const text = lines.replaceAll("'", "'\\''");
    const output = await this.run(`mkdir -p "$(dirname "${file}")" && printf %s '${text}' >> "${file}"`, options);
    if (!output.isSuccess) throw new FailedError(`sandbox ${this.#sandbox.id}`, "not able to keep variables", output.stderr);
  }
}

/** Reads an execution to its end and tells of output on the way. */
export async function watched(execution: Execution, options: RunOptions): Promise<Output> {
  if (options.onStdout === undefined && options.onStderr === undefined) return execution.output();
  const output = new Output();
  for await (const event of execution) {
    output.push(event);
    if (event.type === "stdout") options.onStdout?.(event.text);
    else if (event.type === "stderr") options.onStderr?.(event.text);
  }
  return output;
}

/** A wait as the protocol writes it; at least one, because 0 is forever. */
export function milliseconds(seconds: number): number {
  if (!(seconds >= 0)) throw new InvalidArgumentError(`${seconds} is not a time in seconds`);
  return Math.max(1, Math.min(Math.round(seconds * 1000), Number.MAX_SAFE_INTEGER));
}

function statusOf(status: CommandStatusResponse): CommandStatus {
  return {
    id: status.id,
    content: status.content ?? "",
    isRunning: status.running,
    exitCode: status.exit_code ?? undefined,
    error: status.error ?? undefined,
    startedAt: new Date(status.started_at),
    finishedAt: status.finished_at == null ? undefined : new Date(status.finished_at),
  };
}
