// What runs in a sandbox, as a stream of events and as the output when it is over.
//
// A stream that breaks is taken up again where it broke, so that every event is given out exactly
// once; that needs events that are numbered, which the published daemon does not send. Its streams
// end with a `StreamBrokenError` when they break.

import { ConnectionError, OpenSandboxError, StreamBrokenError } from "./errors.ts";
import { EventDecoder } from "./frames.ts";
import { RichResult } from "./results.ts";
import { type Answer, BodyReader, deadline, pause, query, segment, type Target } from "./transport.ts";
import type { ExecutionError, ServerStreamEvent } from "./wire.ts";

/**
 * Attempts to take a broken stream up again without a single event in between: with the growing
 * waits between them some ten seconds, in which a server restarts.
 */
const RESUME_ATTEMPTS = 8;

/** The wait before the second attempt; it doubles from there. The first is made at once. */
const RESUME_DELAY_SECONDS = 0.1;

/**
 * After the last event the daemon closes the stream at once. A proxy that keeps it open must not
 * keep the caller.
 */
const DRAIN_SECONDS = 1;

/** One event of an execution. */
export type ExecutionEvent =
  /** It has begun; `id` is what to ask by: a command's id, the session's, the context's. */
  | { type: "started"; id: string }
  /** Output, with the line ends it was written with. */
  | { type: "stdout"; text: string }
  /** Error output, with the line ends it was written with. */
  | { type: "stderr"; text: string }
  /** A value or a display of code. */
  | { type: "result"; result: RichResult }
  /** How many cells the context has run. */
  | { type: "count"; count: number }
  /** It failed. */
  | { type: "error"; error: ExecutionFailure }
  /** It is over. */
  | { type: "completed"; tookSeconds: number | undefined };

/** How an execution failed. */
export interface ExecutionFailure {
  /** `CommandExecError`, `NameError`. */
  name: string;
  /** The exit code of a command, the message of an exception. */
  value: string;
  /** Where it happened, one entry per line. */
  traceback: string[];
}

/** How an execution ended: with a code, by a signal, or with an exception or not at all. */
export type Ending =
  | { how: "code"; code: number }
  | { how: "signal"; signal: string }
  | { how: "failed" };

/** Everything an execution gave. */
export class Output {
  /** What to ask by. */
  id: string | undefined;
  /** Values and displays of code. */
  results: RichResult[] = [];
  /** How it failed; nothing if it did not. */
  error: ExecutionFailure | undefined;
  /** How many cells the context has run. */
  count: number | undefined;
  /** How long it took. */
  tookSeconds: number | undefined;
  #stdout: string[] = [];
  #stderr: string[] = [];
  #isComplete = false;

  /** Its output. */
  get stdout(): string {
    return joinedText(this.#stdout);
  }

  /** Its error output. */
  get stderr(): string {
    return joinedText(this.#stderr);
  }

  /**
   * The exit code: 0 when it completed, -1 for a signal, nothing when there is none because it did
   * not start or was code that failed.
   */
  get exitCode(): number | undefined {
    if (this.error === undefined) return this.#isComplete ? 0 : undefined;
    return /^[+-]?\d+$/.test(this.error.value) ? Number(this.error.value) : undefined;
  }

  /** How it ended. */
  get ending(): Ending {
    const signal = /^signal: (.*)$/.exec(this.error?.traceback[0] ?? "")?.[1];
    if (signal !== undefined) return { how: "signal", signal };
    const code = this.exitCode;
    return code === undefined ? { how: "failed" } : { how: "code", code };
  }

  /** Whether it succeeded. */
  get isSuccess(): boolean {
    return this.error === undefined && this.#isComplete;
  }

  /** The text of the last value of code. */
  get text(): string | undefined {
    return this.results.findLast((result) => result.text !== undefined)?.text;
  }

  /** Takes an event in. */
  push(event: ExecutionEvent): void {
    switch (event.type) {
      case "started":
        this.id = event.id;
        break;
      case "stdout":
        this.#stdout.push(event.text);
        break;
      case "stderr":
        this.#stderr.push(event.text);
        break;
      case "result":
        this.results.push(event.result);
        break;
      case "count":
        this.count = event.count;
        break;
      case "error":
        this.error = event.error;
        break;
      case "completed":
        this.tookSeconds = event.tookSeconds;
        this.#isComplete = true;
    }
  }

  /** What a log of it shows. */
  toJSON(): object {
    const { id, stdout, stderr, results, error, count, tookSeconds, exitCode } = this;
    return { id, stdout, stderr, results, error, count, tookSeconds, exitCode };
  }
}

/** The texts as one, which the list then holds alone. */
function joinedText(texts: string[]): string {
  if (texts.length > 1) texts.splice(0, texts.length, texts.join(""));
  return texts[0] ?? "";
}

/**
 * What an execution is of, which decides how its stream is read. A command can be taken up again and
 * `error` is its last event; the events of a session cannot be asked for again; texts of code are as
 * they were written, and `execution_complete` comes after `error`.
 */
export type ExecutionKind = "command" | "session" | "context";

/**
 * An execution under way: its events by `for await`, or all of it by {@link Execution.output}.
 * Leaving the loop early lets the execution go on without a reader.
 */
export class Execution implements AsyncIterableIterator<ExecutionEvent, undefined> {
  readonly #kind: ExecutionKind;
  readonly #target: Target;
  readonly #signal: AbortSignal | undefined;
  #wire: Wire;
  #id: string | undefined;
  #lastSeq: number | undefined;
  /** Attempts to go on since the last event. */
  #failures = 0;
  /** Events that have come, with their numbers; those before `#readyAt` were given out. */
  #ready: ExecutionEvent[] = [];
  #readySeqs: (number | undefined)[] = [];
  #readyAt = 0;
  /** The number of the last event that was given out before those. */
  #givenSeq: number | undefined;
  #isOver = false;
  #isClosed = false;

  /** @internal */
  constructor(answer: Answer, kind: ExecutionKind, target: Target, signal?: AbortSignal, id?: string, after?: number) {
    this.#kind = kind;
    this.#target = target;
    this.#signal = signal;
    this.#id = id;
    this.#lastSeq = after;
    this.#givenSeq = after;
    this.#wire = new Wire(answer, this.#what);
  }

  /** What to ask by, once it has begun. */
  get id(): string | undefined {
    return this.#id;
  }

  /** The number of the last event that was given out, to follow a command from; only of servers that number them. */
  get lastSeq(): number | undefined {
    return this.#readySeqs[this.#readyAt - 1] ?? this.#givenSeq;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next event. */
  next(): Promise<IteratorResult<ExecutionEvent, undefined>> {
    // Most events are here already, and one promise is all they cost.
    const event = this.#ready[this.#readyAt];
    if (event !== undefined) {
      this.#readyAt++;
      return Promise.resolve({ value: event, done: false });
    }
    return this.#nextFromWire();
  }

  /** Gives the stream up; what runs goes on. */
  return(): Promise<IteratorResult<ExecutionEvent, undefined>> {
    if (!this.#isClosed) this.#wire.cancel();
    this.#close();
    return Promise.resolve({ value: undefined, done: true });
  }

  /** Reads to the end and answers everything. */
  async output(): Promise<Output> {
    const output = new Output();
    for await (const event of this) output.push(event);
    return output;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  #close(): void {
    this.#isClosed = true;
    this.#forgetReady();
  }

  #forgetReady(): void {
    this.#givenSeq = this.lastSeq;
    this.#ready = [];
    this.#readySeqs = [];
    this.#readyAt = 0;
  }

  #give(event: ExecutionEvent, seq: number | undefined): void {
    this.#ready.push(event);
    this.#readySeqs.push(seq);
  }

  async #nextFromWire(): Promise<IteratorResult<ExecutionEvent, undefined>> {
    try {
      while (!this.#isClosed) {
        this.#forgetReady();
        await this.#read();
        const event = this.#ready[0];
        if (event !== undefined) {
          this.#readyAt = 1;
          return { value: event, done: false };
        }
      }
      return { value: undefined, done: true };
    } catch (error) {
      // The reader that waited when it was given up is told of its end, not of an error.
      if (this.#isClosed) return { value: undefined, done: true };
      // Nothing comes after an error.
      this.#wire.cancel();
      this.#close();
      throw error;
    }
  }

  async #read(): Promise<void> {
    let events: ServerStreamEvent[] | undefined;
    if (this.#isOver) {
      // Whatever happens now, everything has come.
      events = await this.#wire.drain();
      if (events === undefined) return this.#close();
    } else {
      try {
        events = await this.#wire.events();
      } catch (error) {
        if (!(error instanceof ConnectionError)) throw error;
        return this.#resume(error);
      }
      if (events === undefined) return this.#resume(undefined);
    }
    for (const event of events) this.#take(event);
  }

  #take(event: ServerStreamEvent): void {
    const seq = event.seq ?? undefined;
    if (seq !== undefined) {
      if (this.#lastSeq !== undefined && seq <= this.#lastSeq) return;
      this.#lastSeq = seq;
      this.#failures = 0;
    }
    switch (event.type) {
      case "stdout":
      case "stderr":
        this.#give({ type: event.type, text: this.#text(event, seq) }, seq);
        return;
      case "init":
        this.#id = (event.text ?? "").trimEnd();
        this.#give({ type: "started", id: this.#id }, seq);
        return;
      case "result":
        this.#give({ type: "result", result: new RichResult(event.results ?? {}, event.execution_count ?? undefined) }, seq);
        return;
      case "execution_count":
        this.#give({ type: "count", count: event.execution_count ?? 0 }, seq);
        return;
      case "error":
        this.#isOver = true;
        this.#give({ type: "error", error: failure(event.error) }, seq);
        return;
      case "execution_complete": {
        this.#isOver = true;
        const took = event.execution_time ?? undefined;
        this.#give({ type: "completed", tookSeconds: took === undefined ? undefined : took / 1000 }, seq);
        return;
      }
      case undefined:
        this.#refuse(event as object);
    }
  }

  /** Events without numbers are lines without their ends, except those of code. */
  #text(event: ServerStreamEvent, seq: number | undefined): string {
    const text = event.text ?? "";
    return seq !== undefined || this.#kind === "context" || text.endsWith("\n") ? text : `${text}\n`;
  }

  /** The stream broke on the daemon's side after it had begun: an error envelope. */
  #refuse(envelope: { code?: unknown; message?: unknown }): never {
    throw new StreamBrokenError(this.#what, `${String(envelope.message)} (${String(envelope.code)})`);
  }

  get #what(): string {
    return `${this.#kind} ${this.#id ?? "(not begun)"}`;
  }

  /** Goes on after the last event that came. */
  async #resume(broken: OpenSandboxError | undefined): Promise<void> {
    const id = this.#id;
    const last = this.#lastSeq;
    if (id === undefined || last === undefined || this.#kind !== "command") {
      const message = "the connection ended before the last event, and this kind of stream cannot be taken up again";
      throw new StreamBrokenError(this.#what, message, broken);
    }
    let cause: unknown = broken;
    while (this.#failures < RESUME_ATTEMPTS) {
      if (this.#failures > 0) await pause(RESUME_DELAY_SECONDS * 2 ** (this.#failures - 1), this.#signal);
      this.#failures++;
      try {
        const answer = await this.#target.send("GET", `/command/${segment(id)}/events`, {
          query: query([["after", last]]),
          isEvents: true,
          signal: this.#signal,
        });
        this.#wire = new Wire(answer, this.#what);
        return;
      } catch (error) {
        if (!(error instanceof OpenSandboxError)) throw error;
        if (!error.isRetryable) throw new StreamBrokenError(this.#what, "its rest is not to be had", error);
        cause = error;
      }
    }
    throw new StreamBrokenError(this.#what, "the sandbox could not be reached again", cause);
  }
}

function failure(error: ExecutionError | null | undefined): ExecutionFailure {
  return { name: error?.ename ?? "", value: error?.evalue ?? "", traceback: error?.traceback ?? [] };
}

/** The bytes of one connection as events. */
class Wire {
  readonly #reader: BodyReader;
  readonly #decoder: EventDecoder;
  #isFinished = false;

  constructor(answer: Answer, what: string) {
    this.#reader = new BodyReader(answer);
    this.#decoder = new EventDecoder(`the stream of ${what}`);
  }

  /** The next events; `undefined` at the end of the connection. */
  async events(): Promise<ServerStreamEvent[] | undefined> {
    if (this.#isFinished) return undefined;
    const piece = await this.#reader.read();
    if (piece !== undefined) return this.#decoder.push(piece) as ServerStreamEvent[];
    this.#isFinished = true;
    try {
      return this.#decoder.finish() as ServerStreamEvent[];
    } catch {
      // Half an event at the end of a broken connection comes again when resumed.
      return [];
    }
  }

  /** The same after the last event, when nothing more need come. */
  async drain(): Promise<ServerStreamEvent[] | undefined> {
    const stop = deadline(DRAIN_SECONDS, () => this.cancel());
    try {
      return await this.events();
    } catch {
      return undefined;
    } finally {
      stop();
    }
  }

  cancel(): void {
    this.#reader.cancel();
  }
}
