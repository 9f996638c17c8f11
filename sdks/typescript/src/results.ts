// What code shows: values in every form they have, and the forms that programs use as types.

/** The richest form of a {@link RichResult}. */
export type ResultKind = "figure" | "table" | "text" | "other";

/** A picture that code made. */
export interface Figure {
  /** `image/png`, `image/svg+xml`. */
  mediaType: string;
  /** The picture's own bytes. */
  bytes: Uint8Array<ArrayBuffer>;
}

/** Forms of pictures, the sharpest first. */
const FIGURE_TYPES = ["image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp"];

/** A value of code in every form it has. */
export class RichResult {
  /** By media type: text as it is, images as base64. */
  readonly byType: Readonly<Record<string, string>>;
  /** Which cell it is the value of; nothing for a display. */
  readonly count: number | undefined;

  constructor(byType: Record<string, unknown>, count?: number) {
    // What arrives as another JSON value is kept as its text.
    const texts = Object.entries(byType).map(([type, value]) => [type, typeof value === "string" ? value : JSON.stringify(value)]);
    this.byType = Object.fromEntries(texts) as Record<string, string>;
    this.count = count;
  }

  /** The richest form it has. */
  get kind(): ResultKind {
    if (FIGURE_TYPES.some((type) => this.byType[type] !== undefined)) return "figure";
    if (this.#hasTable) return "table";
    return this.text === undefined ? "other" : "text";
  }

  get #hasTable(): boolean {
    return /<table[\s>]/i.test(this.html ?? "");
  }

  /** The value as plain text. */
  get text(): string | undefined {
    return this.byType["text/plain"] ?? this.byType["text"];
  }

  /** The value as HTML. */
  get html(): string | undefined {
    return this.byType["text/html"];
  }

  /** The value as Markdown. */
  get markdown(): string | undefined {
    return this.byType["text/markdown"];
  }

  /** The value as JSON. */
  get json(): unknown {
    const text = this.byType["application/json"];
    return text === undefined ? undefined : JSON.parse(text);
  }

  /** The value as a picture. */
  get figure(): Figure | undefined {
    const mediaType = FIGURE_TYPES.find((type) => this.byType[type] !== undefined);
    if (mediaType === undefined) return undefined;
    const text = this.byType[mediaType] ?? "";
    // SVG is text; whatever is not, comes as base64.
    const bytes = mediaType === "image/svg+xml" ? new TextEncoder().encode(text) : fromBase64(text);
    return { mediaType, bytes };
  }

  /** The value as a table, where its HTML has one, as data frames have: rows of cells, the head first. */
  get table(): string[][] | undefined {
    if (!this.#hasTable) return undefined;
    const rows = (this.html ?? "").match(/<tr[\s>][\s\S]*?<\/tr>/gi) ?? [];
    return rows.map((row) => {
      const cells = row.match(/<t[hd][\s>][\s\S]*?<\/t[hd]>/gi) ?? [];
      return cells.map((cell) => plainText(cell).trim());
    });
  }

  /** The value in this form. */
  get(mediaType: string): string | undefined {
    return this.byType[mediaType];
  }
}

const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " " };

function plainText(html: string): string {
  return html.replace(/<[^>]*>/g, "").replace(/&(#x?[\da-f]+|[a-z]+);/gi, (whole, name: string) => {
    if (!name.startsWith("#")) return ENTITIES[name.toLowerCase()] ?? whole;
    const code = /^#x/i.test(name) ? Number.parseInt(name.slice(2), 16) : Number.parseInt(name.slice(1), 10);
    return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.replace(/\s/g, ""));
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}
