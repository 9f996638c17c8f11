// As much of TOML 1.0 as the command line's settings use: tables, dotted keys, strings of one line,
// numbers, booleans, and arrays and inline tables of those. Dates and strings of several lines are refused.

/** A value of a settings file. */
export type TomlValue = string | number | boolean | TomlValue[] | { [key: string]: TomlValue };

type Table = { [key: string]: TomlValue };

const ESCAPES: Record<string, string> = { b: "\b", t: "\t", n: "\n", f: "\f", r: "\r", '"': '"', "\\": "\\" };

/** Reads a file; throws an `Error` that names the line. */
export function parseToml(text: string): Table {
  const root = emptyTable();
  let table = root;
  const reader = new Reader(text);
  for (;;) {
    reader.skip(true);
    if (reader.isAtEnd) return root;
    if (reader.take("[[")) throw reader.error("arrays of tables are not supported here");
    if (reader.take("[")) {
      table = descend(root, reader.keys(), reader);
      reader.expect("]");
    } else {
      const keys = reader.keys();
      reader.expect("=");
      const last = keys.pop() as string;
      const place = descend(table, keys, reader);
      if (Object.hasOwn(place, last)) throw reader.error(`${last} is set twice`);
      place[last] = reader.value();
    }
    reader.endLine();
  }
}

/** Without a prototype, so that a key `__proto__` is a key. */
function emptyTable(): Table {
  return Object.create(null) as Table;
}

function descend(table: Table, keys: string[], reader: Reader): Table {
  let place = table;
  for (const key of keys) {
    place[key] ??= emptyTable();
    const next = place[key];
    if (typeof next !== "object" || Array.isArray(next)) throw reader.error(`${key} is not a table`);
    place = next;
  }
  return place;
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#text.length;
  }

  error(message: string): Error {
    const line = this.#text.slice(0, this.#at).split("\n").length;
    return new Error(`line ${line}: ${message}`);
  }

  /** Passes over blanks and comments, and line ends where they mean nothing. */
  skip(withLines: boolean): void {
    const pattern = withLines ? /(?:[ \t\r\n]|#[^\n]*)*/y : /[ \t]*/y;
    this.#match(pattern);
  }

  take(text: string): boolean {
    if (!this.#text.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  expect(text: string): void {
    this.skip(false);
    if (!this.take(text)) throw this.error(`expected ${JSON.stringify(text)}`);
  }

  endLine(): void {
    if (this.#match(/[ \t]*(?:#[^\n]*)?(?:\r?\n|$)/y) === undefined) throw this.error("expected the end of the line");
  }

  /** A dotted key. */
  keys(): string[] {
    const keys: string[] = [];
    do {
      this.skip(false);
      const bare = this.#match(/[A-Za-z0-9_-]+/y);
      keys.push(bare ?? this.#string());
      this.skip(false);
    } while (this.take("."));
    return keys;
  }

  value(): TomlValue {
    this.skip(false);
    if (this.take("[")) return this.#array();
    if (this.take("{")) return this.#inlineTable();
    const word = this.#match(/[A-Za-z0-9+\-_.:]+/y);
    if (word === undefined) return this.#string();
    if (word === "true" || word === "false") return word === "true";
    const digits = word.replaceAll("_", "");
    if (!/^(?:[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|0x[\da-fA-F]+|0o[0-7]+|0b[01]+)$/.test(digits)) {
      throw this.error(`${JSON.stringify(word)} is not a value; text stands in quotes`);
    }
    return Number(digits);
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    if (found !== undefined) this.#at += found.length;
    return found;
  }

  #string(): string {
    if (/^(?:"""|''')/.test(this.#text.slice(this.#at, this.#at + 3))) {
      throw this.error("text of several lines is not supported here");
    }
    const literal = this.#match(/'[^'\n]*'/y);
    if (literal !== undefined) return literal.slice(1, -1);
    const basic = this.#match(/"(?:[^"\\\n]|\\.)*"/y);
    if (basic === undefined) throw this.error("expected text in quotes");
    return basic.slice(1, -1).replace(/\\(u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)/g, (_, escape: string) => {
      if (escape.length > 1) return String.fromCodePoint(Number.parseInt(escape.slice(1), 16));
      const meant = ESCAPES[escape];
      if (meant === undefined) throw this.error(`\\${escape} is not an escape`);
      return meant;
    });
  }

  #array(): TomlValue[] {
    const items: TomlValue[] = [];
    for (;;) {
      this.skip(true);
      if (this.take("]")) return items;
      items.push(this.value());
      this.skip(true);
      if (this.take("]")) return items;
      this.expect(",");
    }
  }

  #inlineTable(): Table {
    const table = emptyTable();
    this.skip(false);
    if (this.take("}")) return table;
    do {
      const keys = this.keys();
      this.expect("=");
      const last = keys.pop() as string;
      descend(table, keys, this)[last] = this.value();
      this.skip(false);
    } while (this.take(","));
    this.expect("}");
    return table;
  }
}
