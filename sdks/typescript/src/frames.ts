// Event streams as values. Reads bare JSON lines, `data:` lines, and plain server-sent events, in
// whatever pieces they arrive; holds at most one event.
//
// Output of commands is bare or `data:` lines and nothing else, some hundred thousand a second. Those
// are read a whole piece of the stream at a time, by one call of the JSON parser; whatever does not
// look like that is read line by line.

import { UnreadableError } from "./errors.ts";

/** Longer than any event we send; the published daemon sends whole lines, however long. */
const EVENT_LENGTH_MAX = 16 * 1024 * 1024;

/** As much of a line as goes into an error. */
const EXCERPT_LENGTH = 80;

/** Reads the events of one stream. */
export class EventDecoder {
  readonly #what: string;
  readonly #utf8 = new TextDecoder();
  /** The line that is arriving. */
  #rest = "";
  /** The `data:` lines of the event that is arriving. */
  #data: string[] = [];
  #dataLength = 0;

  constructor(what: string) {
    this.#what = what;
  }

  /** The events that this piece completes. */
  push(piece: Uint8Array): unknown[] {
    const text = this.#utf8.decode(piece, { stream: true });
    const end = text.lastIndexOf("\n");
    if (end < 0) {
      this.#keep(this.#rest + text);
      return [];
    }
    const lines = this.#rest + text.slice(0, end + 1);
    this.#keep(text.slice(end + 1));
    return this.#data.length > 0 ? this.#byLine(lines) : (this.#atOnce(lines) ?? this.#byLine(lines));
  }

  /**
   * Ends the stream: an event that lacks its empty line or even its line end counts, as clients of
   * the published daemon take such an event too.
   */
  finish(): unknown[] {
    const last = this.#rest + this.#utf8.decode();
    this.#rest = "";
    return this.#byLine(`${last}\n\n`);
  }

  #keep(rest: string): void {
    if (rest.length > EVENT_LENGTH_MAX) throw this.#tooLong();
    this.#rest = rest;
  }

  /** Whole lines of one form, or nothing. A line end in a JSON string is escaped, so none is mistaken. */
  #atOnce(lines: string): unknown[] | undefined {
    let list: string;
    if (lines.startsWith("{") && lines.endsWith("}\n\n")) {
      list = lines.replaceAll("}\n\n{", "},{");
    } else if (lines.startsWith("data: {") && lines.endsWith("}\n\n")) {
      list = lines.slice("data: ".length).replaceAll("}\n\ndata: {", "},{");
    } else {
      return undefined;
    }
    try {
      return JSON.parse(`[${list}]`) as unknown[];
    } catch {
      return undefined;
    }
  }

  #byLine(lines: string): unknown[] {
    const events: unknown[] = [];
    const all = lines.split("\n");
    // After the last line end is nothing.
    all.pop();
    for (const line of all) this.#line(line.endsWith("\r") ? line.slice(0, -1) : line, events);
    return events;
  }

  #line(line: string, events: unknown[]): void {
    if (line === "") {
      if (this.#data.length === 0) return;
      events.push(this.#parse(this.#data.join("\n")));
      this.#data = [];
      this.#dataLength = 0;
      return;
    }
    const bare = line.trim();
    if (bare.startsWith("{") || bare.startsWith("[")) {
      events.push(this.#parse(bare));
      return;
    }
    const field = /^([A-Za-z0-9_-]*): ?/.exec(line);
    if (field === null) {
      throw new UnreadableError(
        this.#what,
        `a line is neither JSON nor a field of server-sent events: ${JSON.stringify(line.slice(0, EXCERPT_LENGTH))}`,
      );
    }
    if (field[1] !== "data") return;
    const data = line.slice(field[0].length);
    this.#dataLength += data.length;
    if (this.#dataLength > EVENT_LENGTH_MAX) throw this.#tooLong();
    this.#data.push(data);
  }

  #parse(text: string): unknown {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new UnreadableError(this.#what, `an event is not JSON: ${(error as Error).message}`, undefined, error);
    }
  }

  #tooLong(): UnreadableError {
    return new UnreadableError(this.#what, `an event is longer than ${EVENT_LENGTH_MAX} characters`);
  }
}
