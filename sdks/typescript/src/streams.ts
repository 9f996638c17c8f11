// Streams that are read with `for await`: events of one kind, and bytes. Leaving the loop early gives
// the connection up; reading to the end leaves it to the next request.

import { EventDecoder } from "./frames.ts";
import { type Answer, BodyReader, joined } from "./transport.ts";

/** Values as they come: an `AsyncIterable`. Unlike a generator it can be closed while a reader waits. */
export class ValueStream<T> implements AsyncIterableIterator<T, undefined> {
  readonly #reader: BodyReader;
  readonly #decoder: EventDecoder;
  readonly #read: (wire: never) => T;
  #ready: T[] = [];
  #isOver = false;

  /** @internal */
  constructor(answer: Answer, what: string, read: (wire: never) => T = (wire) => wire) {
    this.#reader = new BodyReader(answer);
    this.#decoder = new EventDecoder(what);
    this.#read = read;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next value. */
  async next(): Promise<IteratorResult<T, undefined>> {
    while (!this.#isOver && this.#ready.length === 0) {
      try {
        const piece = await this.#reader.read();
        if (piece === undefined) this.#isOver = true;
        else this.#ready = this.#decoder.push(piece).map((value) => this.#read(value as never));
      } catch (error) {
        // The reader that waited when the stream was given up is told of its end, not of an error.
        if (this.#isOver) break;
        await this.return();
        throw error;
      }
    }
    const value = this.#ready.shift();
    return value === undefined ? { value: undefined, done: true } : { value, done: false };
  }

  /** Gives the stream up. */
  async return(): Promise<IteratorResult<T, undefined>> {
    if (!this.#isOver) this.#reader.cancel();
    this.#isOver = true;
    this.#ready = [];
    return { value: undefined, done: true };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}

/** Bytes as they arrive: an `AsyncIterable`, or a `ReadableStream` by {@link ByteStream.stream}. */
export class ByteStream implements AsyncIterable<Uint8Array> {
  /** How many bytes there are in all, if that is known. */
  readonly length: number | undefined;
  readonly #reader: BodyReader;

  /** @internal */
  constructor(answer: Answer) {
    const length = answer.response.headers.get("Content-Length");
    // A length counts what was sent, which is not what arrives when a proxy has compressed it.
    const isPlain = answer.response.headers.get("Content-Encoding") === null;
    this.length = length === null || !isPlain ? undefined : Number(length);
    this.#reader = new BodyReader(answer);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    let isAtEnd = false;
    try {
      for (let piece = await this.#reader.read(); piece !== undefined; piece = await this.#reader.read()) yield piece;
      isAtEnd = true;
    } finally {
      if (!isAtEnd) this.cancel();
    }
  }

  /** Reads to the end. */
  async bytes(): Promise<Uint8Array<ArrayBuffer>> {
    const pieces: Uint8Array[] = [];
    let length = 0;
    for await (const piece of this) {
      pieces.push(piece);
      length += piece.length;
    }
    return joined(pieces, length);
  }

  /** The same as a stream of the web platform. */
  stream(): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        const piece = await this.#reader.read();
        if (piece === undefined) controller.close();
        else controller.enqueue(piece);
      },
      cancel: () => this.cancel(),
    });
  }

  /** Gives the rest up. */
  cancel(): void {
    this.#reader.cancel();
  }
}
