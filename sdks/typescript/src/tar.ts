// Archives: POSIX tar (IEEE Std 1003.1-2017, pax) written and read as streams. Files, directories
// and links; devices and sparse files are passed over when read.

import { UnreadableError } from "./errors.ts";

const BLOCK = 512;

/** Names and links longer than a header holds, and sizes above 8 GiB, go into a pax record. */
const NAME_BYTES_MAX = 100;
const SIZE_MAX = 8 ** 11 - 1;

/** A pax record of a name is at most this long; more is a fault or an attack. */
const PAX_BYTES_MAX = 1024 * 1024;

/** What is in an archive. */
export interface TarEntry {
  /** Relative path, without a slash at the end. */
  name: string;
  type: "file" | "directory" | "symlink" | "link";
  /** Permission bits. */
  mode: number;
  /** Seconds since 1970. */
  modifiedSeconds: number;
  /** Size of the contents. */
  size: number;
  /** Where a link leads. */
  target?: string;
}

/** What goes into an archive. */
export interface TarInput {
  name: string;
  type?: "file" | "directory" | "symlink";
  mode?: number;
  modifiedSeconds?: number;
  target?: string;
  /** Contents in memory, or a stream of exactly `size` bytes. */
  contents?: string | Uint8Array | { size: number; stream: AsyncIterable<Uint8Array> };
}

const encoder = new TextEncoder();

/** Writes an archive. */
export async function* packTar(
  inputs: Iterable<TarInput> | AsyncIterable<TarInput>,
): AsyncGenerator<Uint8Array<ArrayBuffer>, void, undefined> {
  for await (const input of inputs) {
    const contents = typeof input.contents === "string" ? encoder.encode(input.contents) : (input.contents ?? new Uint8Array());
    const size = contents instanceof Uint8Array ? contents.length : contents.size;
    yield header(input, size);
    let written = 0;
    for await (const piece of contents instanceof Uint8Array ? [contents] : contents.stream) {
      written += piece.length;
      if (written > size) break;
      yield new Uint8Array(piece);
    }
    if (written !== size) throw new Error(`${input.name} has another size than the ${size} bytes it was said to have`);
    yield new Uint8Array(padding(size));
  }
  yield new Uint8Array(2 * BLOCK);
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function header(input: TarInput, size: number): Uint8Array<ArrayBuffer> {
  const type = input.type ?? "file";
  const name = type === "directory" ? `${input.name}/` : input.name;
  const target = input.target ?? "";
  const records: [string, string][] = [];
  if (encoder.encode(name).length > NAME_BYTES_MAX) records.push(["path", name]);
  if (encoder.encode(target).length > NAME_BYTES_MAX) records.push(["linkpath", target]);
  if (size > SIZE_MAX) records.push(["size", String(size)]);
  const flags = { file: "0", symlink: "2", directory: "5" };
  const mode = input.mode ?? (type === "directory" ? 0o755 : 0o644);
  const modified = Math.max(0, Math.floor(input.modifiedSeconds ?? 0));
  const own = block(name, mode, records.some(([key]) => key === "size") ? 0 : size, modified, flags[type], target);
  if (records.length === 0) return own;
  const text = encoder.encode(records.map(([key, value]) => record(key, value)).join(""));
  const whole = new Uint8Array(BLOCK + text.length + padding(text.length) + BLOCK);
  whole.set(block("PaxHeader", 0o644, text.length, 0, "x", ""));
  whole.set(text, BLOCK);
  whole.set(own, whole.length - BLOCK);
  return whole;
}

/** `length key=value`, where the length counts its own digits. */
function record(key: string, value: string): string {
  const rest = encoder.encode(` ${key}=${value}\n`).length;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length = rest + String(length).length;
  return `${length} ${key}=${value}\n`;
}

function block(name: string, mode: number, size: number, modified: number, flag: string, target: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(BLOCK);
  const put = (at: number, text: string, most: number) => {
    bytes.set(encoder.encode(text).subarray(0, most), at);
  };
  const octal = (value: number, width: number) => `${value.toString(8).padStart(width - 1, "0")}\0`;
  put(0, name, NAME_BYTES_MAX);
  put(100, octal(mode & 0o7777, 8), 8);
  put(108, octal(0, 8), 8);
  put(116, octal(0, 8), 8);
  put(124, octal(size, 12), 12);
  put(136, octal(modified, 12), 12);
  put(148, "        ", 8);
  put(156, flag, 1);
  put(157, target, NAME_BYTES_MAX);
  put(257, "ustar\x0000", 8);
  const sum = bytes.reduce((total, byte) => total + byte, 0);
  put(148, `${sum.toString(8).padStart(6, "0")}\0 `, 8);
  return bytes;
}

/** An entry that was read, with its contents, which must be read before the next entry is asked for. */
export interface TarRead extends TarEntry {
  contents(): AsyncGenerator<Uint8Array, void, undefined>;
}

/** Reads an archive, entry by entry. */
export async function* unpackTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarRead, void, undefined> {
  const reader = new Blocks(source);
  let extra: Record<string, string> = {};
  try {
    for (;;) {
      const head = await reader.take(BLOCK);
      if (head === undefined || head.every((byte) => byte === 0)) return;
      const { flag, entry } = parse(head);
      if (flag === "x" || flag === "g" || flag === "L" || flag === "K") {
        const found = extension(flag, await reader.text(entry.size));
        // A record for all entries may name none of what is read here but by mistake.
        if (flag !== "g") extra = { ...extra, ...found };
        continue;
      }
      const size = extra["size"] === undefined ? entry.size : Number(extra["size"]);
      const type = TYPES[flag];
      const name = (extra["path"] ?? entry.name).replace(/\/+$/, "");
      const target = extra["linkpath"] ?? entry.target ?? "";
      extra = {};
      const left = { bytes: type === "file" || type === undefined ? size : 0 };
      const hasTarget = type === "symlink" || type === "link";
      if (type !== undefined) {
        const contents = () => reader.stream(left);
        yield { ...entry, name, type, size: left.bytes, contents, ...(hasTarget ? { target } : { target: undefined }) } as TarRead;
      }
      // What was not read is passed over.
      for await (const _ of reader.stream(left));
      await reader.take(padding(type === "file" || type === undefined ? size : 0));
    }
  } finally {
    await reader.close();
  }
}

const TYPES: Record<string, TarEntry["type"] | undefined> = {
  "0": "file", "\0": "file", "7": "file", "1": "link", "2": "symlink", "5": "directory",
};

function parse(head: Uint8Array): { flag: string; entry: TarEntry } {
  const text = (at: number, length: number) => {
    const field = head.subarray(at, at + length);
    const end = field.indexOf(0);
    return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end));
  };
  const octal = (at: number, length: number) => Number.parseInt(text(at, length).trim() || "0", 8);
  const sum = head.reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 0x20 : byte), 0);
  if (sum !== octal(148, 8)) throw new UnreadableError("an archive", "a header's checksum is wrong", "read it again");
  const prefix = text(257, 6) === "ustar" ? text(345, 155) : "";
  const name = text(0, NAME_BYTES_MAX);
  // GNU writes sizes above 8 GiB in base 256, marked by the first bit.
  const isBinary = ((head[124] ?? 0) & 0x80) !== 0;
  const size = isBinary ? head.subarray(125, 136).reduce((total, byte) => total * 256 + byte, 0) : octal(124, 12);
  return {
    flag: String.fromCharCode(head[156] ?? 0),
    entry: {
      name: prefix === "" ? name : `${prefix}/${name}`,
      type: "file",
      mode: octal(100, 8) & 0o7777,
      modifiedSeconds: octal(136, 12),
      size,
      target: text(157, NAME_BYTES_MAX),
    },
  };
}

function extension(flag: string, bytes: Uint8Array): Record<string, string> {
  const decoder = new TextDecoder();
  if (flag === "L" || flag === "K") {
    return { [flag === "L" ? "path" : "linkpath"]: decoder.decode(bytes).replace(/\0.*$/s, "") };
  }
  const found: Record<string, string> = {};
  for (let at = 0; at < bytes.length; ) {
    const blank = bytes.indexOf(0x20, at);
    const length = Number(decoder.decode(bytes.subarray(at, blank)));
    if (blank < 0 || !(length > 0)) break;
    const [key, ...value] = decoder.decode(bytes.subarray(blank + 1, at + length - 1)).split("=");
    if (key !== undefined) found[key] = value.join("=");
    at += length;
  }
  return found;
}

/** Bytes of a source in the amounts that are asked for. */
class Blocks {
  readonly #source: AsyncIterator<Uint8Array>;
  #piece: Uint8Array = new Uint8Array();

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At most so many bytes; nothing at the end. */
  async #some(most: number): Promise<Uint8Array | undefined> {
    while (this.#piece.length === 0) {
      const next = await this.#source.next();
      if (next.done) return undefined;
      this.#piece = next.value;
    }
    const some = this.#piece.subarray(0, most);
    this.#piece = this.#piece.subarray(some.length);
    return some;
  }

  /** Exactly so many bytes; nothing when the source has ended before the first. */
  async take(length: number): Promise<Uint8Array | undefined> {
    const whole = new Uint8Array(length);
    for (let at = 0; at < length; ) {
      const some = await this.#some(length - at);
      if (some === undefined) {
        if (at === 0) return undefined;
        throw new UnreadableError("an archive", "it ends in the middle of a block", "read it again");
      }
      whole.set(some, at);
      at += some.length;
    }
    return whole;
  }

  /** The contents of a header's own record. */
  async text(size: number): Promise<Uint8Array> {
    if (size > PAX_BYTES_MAX) throw new UnreadableError("an archive", `a name is longer than ${PAX_BYTES_MAX} bytes`);
    const bytes = (await this.take(size)) ?? new Uint8Array();
    await this.take(padding(size));
    return bytes;
  }

  async *stream(left: { bytes: number }): AsyncGenerator<Uint8Array, void, undefined> {
    while (left.bytes > 0) {
      const some = await this.#some(left.bytes);
      if (some === undefined) throw new UnreadableError("an archive", "it ends in the middle of a file", "read it again");
      left.bytes -= some.length;
      yield some;
    }
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }
}
