// What is written to files: bytes in memory, or streams that are never whole in memory, and the
// multipart form (RFC 7578) that carries them.

import { isNodeLike } from "./runtime.ts";
import { type Call, joined } from "./transport.ts";
import type { FileMetadata } from "./wire.ts";

/** What a file is to contain. */
export type Contents =
  | string
  | Uint8Array
  | ArrayBuffer
  | Blob
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array | string>;

/** A file to write. */
export interface WriteFile {
  path: string;
  contents: Contents;
  /** Permission bits: `0o644`. */
  mode?: number | undefined;
  /** By name or number. */
  owner?: string | undefined;
  /** By name or number. */
  group?: string | undefined;
}

/** Forms up to this size are put together in one array, which `fetch` sends without a stream. */
const ARRAY_BYTES_MAX = 1024 * 1024;

type Part = Uint8Array<ArrayBuffer> | Blob | AsyncIterable<Uint8Array | string> | ReadableStream<Uint8Array>;

/** What goes over the wire, and the error of a source that could not be read to its end. */
export interface Body {
  call: Pick<Call, "body" | "contentType" | "timeoutSeconds">;
  /** What a source threw, which explains better than the connection why sending failed. */
  sourceError(): unknown;
}

/** A `metadata` and a `file` part for each file. */
export async function form(files: WriteFile[]): Promise<Body> {
  const boundary = `osb-${crypto.randomUUID()}`;
  const parts: Part[] = [];
  for (const file of files) {
    parts.push(utf8(heads(boundary, file)), partOf(file.contents), utf8("\r\n"));
  }
  parts.push(utf8(`--${boundary}--\r\n`));
  return body(parts, `multipart/form-data; boundary=${boundary}`);
}

/** One body of these contents. */
export async function single(contents: Contents, contentType: string): Promise<Body> {
  return body([partOf(contents)], contentType);
}

async function body(parts: Part[], contentType: string): Promise<Body> {
  const inMemory = parts.filter((part) => part instanceof Uint8Array || part instanceof Blob);
  if (inMemory.length === parts.length) {
    return { call: { body: await whole(inMemory), contentType }, sourceError: () => undefined };
  }
  let failure: unknown;
  const stream = streamOf(parts, (error) => {
    failure = error;
  });
  // Browsers send streams over HTTP/2 only; there the whole is put together first.
  const sent = isNodeLike() ? stream : await new Response(stream).blob();
  // Takes as long as the source takes to give its bytes.
  return { call: { body: sent, contentType, timeoutSeconds: null }, sourceError: () => failure };
}

async function whole(parts: (Uint8Array<ArrayBuffer> | Blob)[]): Promise<Uint8Array<ArrayBuffer> | Blob> {
  const length = parts.reduce((sum, part) => sum + (part instanceof Blob ? part.size : part.length), 0);
  if (length > ARRAY_BYTES_MAX) return new Blob(parts);
  const arrays = parts.map(async (part) => (part instanceof Blob ? new Uint8Array(await part.arrayBuffer()) : part));
  return joined(await Promise.all(arrays), length);
}

function partOf(contents: Contents): Part {
  if (typeof contents === "string") return utf8(contents);
  if (contents instanceof ArrayBuffer) return new Uint8Array(contents);
  // Not over shared memory, which may change while it is sent.
  if (contents instanceof Uint8Array) {
    return contents.buffer instanceof ArrayBuffer ? (contents as Uint8Array<ArrayBuffer>) : new Uint8Array(contents);
  }
  return contents;
}

function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

function heads(boundary: string, file: WriteFile): string {
  const metadata: FileMetadata = { path: file.path };
  if (file.mode !== undefined) metadata.mode = writtenMode(file.mode);
  if (file.owner !== undefined) metadata.owner = file.owner;
  if (file.group !== undefined) metadata.group = file.group;
  const head = (name: string, type: string) =>
    // The published daemon wants every part to have a file name; which does not matter.
    `--${boundary}\r\nContent-Disposition: form-data; name="${name}"; filename="${name}"\r\nContent-Type: ${type}\r\n\r\n`;
  return `${head("metadata", "application/json")}${JSON.stringify(metadata)}\r\n${head("file", "application/octet-stream")}`;
}

async function* pieces(part: Part): AsyncGenerator<Uint8Array, void, undefined> {
  if (part instanceof Uint8Array) return void (yield part);
  const source = part instanceof Blob ? part.stream() : part;
  if (Symbol.asyncIterator in source) {
    for await (const piece of source) yield typeof piece === "string" ? utf8(piece) : piece;
    return;
  }
  // Safari's streams are not iterable.
  const reader = (source as ReadableStream<Uint8Array>).getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
}

function streamOf(parts: Part[], failed: (error: unknown) => void): ReadableStream<Uint8Array> {
  const all = (async function* () {
    for (const part of parts) yield* pieces(part);
  })();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { value, done } = await all.next();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        failed(error);
        throw error;
      }
    },
    async cancel() {
      await all.return();
    },
  });
}

/** Permission bits as the protocol writes them: octal digits as a decimal number, 755 for `0o755`. */
export function writtenMode(mode: number): number {
  return Number((mode & 0o7777).toString(8));
}

/** The permission bits that the protocol writes so. */
export function modeOf(written: number): number {
  return Number.parseInt(String(written), 8);
}
