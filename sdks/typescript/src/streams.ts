// Streams that are read with `for await`: events of one kind, and bytes. Leaving the loop early gives
// the connection up; reading to the end leaves it to the next request.

import { EventDecoder } from "./frames.ts";
import { type Answer, BodyReader, joined } from "./transport.ts";

/** A stream of JSON values of one kind: metrics, lifecycle events, logs. */
export async function* values<T>(answer: Answer, what: string): AsyncGenerator<T, void, undefined> {
  const reader = new BodyReader(answer);
  const decoder = new EventDecoder(what);
  let isAtEnd = false;
  try {
    for (let piece = await reader.read(); piece !== undefined; piece = await reader.read()) {
      yield* decoder.push(piece) as T[];
    }
    isAtEnd = true;
  } finally {
    if (!isAtEnd) reader.cancel();
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
