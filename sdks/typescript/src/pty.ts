// Terminals: a shell with a screen, over a WebSocket that can be left and come back to.

import { OpenSandboxError, TerminalError } from "./errors.ts";
import { socketTakesHeaders } from "./runtime.ts";
import type { Sandbox } from "./sandbox.ts";
import { type Abortable, deadline, query, segment, type Target } from "./transport.ts";
import type { CreatePtyResponse, PtyClientMessage, PtyServerMessage, PtySignal, PtyStatus } from "./wire.ts";

const KIND_STDIN = 0;
const KIND_STDOUT = 1;
const KIND_STDERR = 2;
const KIND_REPLAY = 3;
const REPLAY_HEAD_BYTES = 9;

const CLOSED_ABNORMALLY = 1006;

/**
 * What waits for a reader. A WebSocket cannot be told to wait, so that a reader who falls further
 * behind loses the connection, and comes back with `since`.
 */
const WAITING_BYTES_MAX = 16 * 1024 * 1024;

/** How long a signed address of a terminal is good; only the handshake needs it. */
const SIGNED_SECONDS = 60;

/** How large a terminal is, in characters. */
export interface TerminalSize {
  columns: number;
  rows: number;
}

/** What a terminal is made of. */
export interface NewTerminal extends Abortable {
  /** Shell text; nothing is an interactive shell. */
  command?: string | undefined;
  /** Where; made when it is not there. */
  cwd?: string | undefined;
  /** From the start: a shell that is told its size only while it starts may miss it. */
  size?: TerminalSize | undefined;
}

/** How to connect to a terminal. */
export interface TerminalOptions extends Abortable {
  /** Pipes instead of a terminal, with stderr apart. */
  pipes?: boolean | undefined;
  /** Replay output from this byte on. */
  since?: number | undefined;
  /** Take it from the client that holds it. */
  takeOver?: boolean | undefined;
  /** What it gets before its shell starts or anything is replayed. Pipes have no size. */
  size?: TerminalSize | undefined;
}

/** What comes from a terminal. */
export type TerminalEvent =
  /** This client now holds the terminal. */
  | { type: "connected" }
  /** Output. */
  | { type: "output"; bytes: Uint8Array }
  /** Error output; only with pipes. */
  | { type: "error_output"; bytes: Uint8Array }
  /** Output from before, or after some that was lost, from this byte of the whole on. */
  | { type: "replay"; offset: number; bytes: Uint8Array }
  /** Something that was sent could not be honoured. */
  | { type: "refused"; code: string; message: string }
  /** The process has ended: its code, -1 for a signal, and which, where the server says so. */
  | { type: "exit"; code: number; signal: number | undefined }
  /** The connection is closed; code 4001 is another client that took over. Nothing comes after. */
  | { type: "closed"; code: number; reason: string };

/** The terminals of a sandbox. */
export class Terminals {
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** Makes a terminal: an interactive shell, or this shell text, in this directory. */
  async create(options: NewTerminal = {}): Promise<Terminal> {
    const { signal, size, ...rest } = options;
    const json = size === undefined ? rest : { ...rest, cols: size.columns, rows: size.rows };
    const exec = await this.#sandbox.exec(signal);
    const made = await exec.json<CreatePtyResponse>("POST", "/pty", { json, signal });
    return this.get(made.session_id);
  }

  /** A terminal by its id, without any request. */
  get(id: string): Terminal {
    return new Terminal(this.#sandbox, id);
  }
}

/** A terminal. It ends with {@link Terminal.delete}, or when an `await using` block is left. */
export class Terminal {
  /** Its id. */
  readonly id: string;
  readonly #sandbox: Sandbox;

  /** @internal */
  constructor(sandbox: Sandbox, id: string) {
    this.#sandbox = sandbox;
    this.id = id;
  }

  /** How it stands. */
  async status(options: Abortable = {}): Promise<PtyStatus> {
    const exec = await this.#sandbox.exec(options.signal);
    return exec.json("GET", `/pty/${segment(this.id)}`, options);
  }

  /** Ends it. */
  async delete(options: Abortable = {}): Promise<void> {
    const exec = await this.#sandbox.exec(options.signal);
    await exec.done("DELETE", `/pty/${segment(this.id)}`, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete();
  }

  /** Connects to it; the first connection starts its shell. */
  async connect(options: TerminalOptions = {}): Promise<TerminalConnection> {
    options.signal?.throwIfAborted();
    const place = await this.#place(options);
    const path = `/pty/${segment(this.id)}/ws`;
    const parameters = query([
      ["pty", options.pipes === true ? "0" : undefined],
      ["since", options.since],
      ["takeover", options.takeOver === true ? "1" : undefined],
      ["cols", options.size?.columns],
      ["rows", options.size?.rows],
    ]);
    const connection = await TerminalConnection.open(place, path, parameters, options.signal);
    if (connection !== undefined) return connection;
    // A WebSocket does not say why it was refused; the same request without the upgrade does.
    const exec = await this.#sandbox.exec(options.signal);
    try {
      await exec.done("GET", path, { query: parameters, signal: options.signal });
    } catch (error) {
      if (!(error instanceof OpenSandboxError) || error.status !== 400) throw error;
    }
    throw new TerminalError("what answered is not a WebSocket", "check for a proxy in between that does not pass WebSockets on");
  }

  /** Browsers put no headers on a WebSocket: there the address itself must let in. */
  async #place(options: Abortable): Promise<Target> {
    const exec = await this.#sandbox.exec(options.signal);
    if (socketTakesHeaders() || Object.keys(exec.headers).length === 0) return exec;
    try {
      return await this.#sandbox.signedExec(new Date(Date.now() + SIGNED_SECONDS * 1000), options.signal);
    } catch (error) {
      if (!(error instanceof OpenSandboxError)) throw error;
      throw new TerminalError(
        "a browser cannot send the headers that this endpoint needs",
        "let the server sign routes, or connect from a server of yours",
        error,
      );
    }
  }
}

/** A connection to a terminal: its events by `for await`, its input by methods. */
export class TerminalConnection implements AsyncIterableIterator<TerminalEvent, undefined> {
  readonly #socket: WebSocket;
  #waiting: (TerminalEvent | { type: "failed"; error: unknown })[] = [];
  #waitingBytes = 0;
  #wake: (() => void) | undefined;
  #isOver = false;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  /** @internal Nothing where the handshake was refused. */
  static async open(
    place: Target,
    path: string,
    parameters: string,
    signal: AbortSignal | undefined,
  ): Promise<TerminalConnection | undefined> {
    const address = `${place.base.replace(/^http/, "ws")}${path}?${parameters}`;
    const headers = { ...place.config.headers, ...place.headers };
    // Node, Bun and Deno take headers here; the types know only what browsers have.
    const second = socketTakesHeaders() ? ({ headers } as unknown as string[]) : undefined;
    const socket = second === undefined ? new WebSocket(address) : new WebSocket(address, second);
    socket.binaryType = "arraybuffer";
    const connection = new TerminalConnection(socket);
    connection.#listen();
    return new Promise((resolve, reject) => {
      const settle = (act: () => void) => {
        stop();
        signal?.removeEventListener("abort", abort);
        act();
      };
      const stop = deadline(place.config.requestTimeoutSeconds, () =>
        settle(() => {
          socket.close();
          reject(new TerminalError(`no answer after ${place.config.requestTimeoutSeconds} s`));
        }),
      );
      const abort = () =>
        settle(() => {
          socket.close();
          reject(signal?.reason);
        });
      signal?.addEventListener("abort", abort, { once: true });
      socket.addEventListener("open", () => settle(() => resolve(connection)), { once: true });
      socket.addEventListener("error", () => settle(() => resolve(undefined)), { once: true });
    });
  }

  #listen(): void {
    this.#socket.addEventListener("message", (message: MessageEvent<ArrayBuffer | string>) => {
      try {
        const event = typeof message.data === "string" ? textEvent(message.data) : binaryEvent(new Uint8Array(message.data));
        if (event !== undefined) this.#give(event);
      } catch (error) {
        this.#fail(error);
      }
    });
    this.#socket.addEventListener("close", (event: CloseEvent) => {
      // 1006 says that no close came over the wire (RFC 6455, section 7.1.5); Deno says 0.
      if (event.code === CLOSED_ABNORMALLY || event.code === 0) this.#fail(new TerminalError("it broke off"));
      else this.#give({ type: "closed", code: event.code, reason: event.reason });
    });
  }

  #give(event: TerminalEvent | { type: "failed"; error: unknown }): void {
    if (this.#isOver) return;
    if ("bytes" in event) this.#waitingBytes += event.bytes.length;
    this.#waiting.push(event);
    if (this.#waitingBytes > WAITING_BYTES_MAX) {
      this.#waiting = [];
      this.#waitingBytes = 0;
      this.#fail(new TerminalError(`more than ${WAITING_BYTES_MAX} bytes wait for a reader`));
    }
    this.#wake?.();
  }

  #fail(error: unknown): void {
    this.#give({ type: "failed", error });
    this.#isOver = true;
    this.#socket.close();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** What comes next; nothing after `closed`. */
  async next(): Promise<IteratorResult<TerminalEvent, undefined>> {
    while (this.#waiting.length === 0) {
      if (this.#isOver) return { value: undefined, done: true };
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const event = this.#waiting.shift() as TerminalEvent | { type: "failed"; error: unknown };
    if (event.type === "failed") throw event.error;
    if ("bytes" in event) this.#waitingBytes -= event.bytes.length;
    if (event.type === "closed") this.#isOver = true;
    return { value: event, done: false };
  }

  /** Leaves the terminal, which goes on without a client. */
  async return(): Promise<IteratorResult<TerminalEvent, undefined>> {
    this.close();
    return { value: undefined, done: true };
  }

  /** Sends keystrokes. */
  write(input: string | Uint8Array): void {
    const bytes = typeof input === "string" ? new TextEncoder().encode(input) : input;
    const frame = new Uint8Array(bytes.length + 1);
    frame[0] = KIND_STDIN;
    frame.set(bytes, 1);
    this.#send(frame);
  }

  /** Says that the window has a new size. */
  resize(columns: number, rows: number): void {
    this.#message({ type: "resize", cols: columns, rows });
  }

  /** Sends a signal to what runs in front. */
  signal(signal: PtySignal): void {
    this.#message({ type: "signal", signal });
  }

  /** Asks the daemon for a sign of life, which says in turn that this client lives. */
  ping(): void {
    this.#message({ type: "ping" });
  }

  /** Leaves the terminal, which goes on without a client. */
  close(): void {
    this.#socket.close(1000);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #message(message: PtyClientMessage): void {
    this.#send(JSON.stringify(message));
  }

  #send(data: string | Uint8Array<ArrayBuffer>): void {
    if (this.#socket.readyState !== WebSocket.OPEN) throw new TerminalError("it is closed");
    this.#socket.send(data);
  }
}

function binaryEvent(frame: Uint8Array): TerminalEvent {
  switch (frame[0]) {
    case KIND_STDOUT:
      return { type: "output", bytes: frame.subarray(1) };
    case KIND_STDERR:
      return { type: "error_output", bytes: frame.subarray(1) };
    case KIND_REPLAY: {
      if (frame.length < REPLAY_HEAD_BYTES) break;
      const offset = new DataView(frame.buffer, frame.byteOffset).getBigUint64(1);
      return { type: "replay", offset: Number(offset), bytes: frame.subarray(REPLAY_HEAD_BYTES) };
    }
  }
  throw new TerminalError(`a frame begins with byte ${frame[0]}, which is no kind of frame`);
}

function textEvent(text: string): TerminalEvent | undefined {
  const message = JSON.parse(text) as PtyServerMessage;
  switch (message.type) {
    case "connected":
      return { type: "connected" };
    case "error":
      return { type: "refused", code: message.code, message: message.error };
    case "exit":
      return { type: "exit", code: message.exit_code, signal: message.signal ?? undefined };
    default:
      return undefined;
  }
}
