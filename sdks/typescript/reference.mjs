// Writes docs/reference.md from the declarations in dist/: every export of the package with its
// members and what is said of them. Run by `prepare` and before packing.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

const dist = new URL("dist/", import.meta.url);
const read = (name) => readFileSync(new URL(name, dist), "utf8");

/** The exports of the package: name, and the module that declares it. */
function exported() {
  const found = [];
  for (const [, names, module] of read("index.d.ts").matchAll(/export (?:type )?\{([^}]+)\} from "\.\/([\w]+)\.[jt]s"/g)) {
    for (const name of names.split(",")) found.push([name.replace(/\btype\b/, "").trim(), module]);
  }
  return found.filter(([name]) => name !== "").sort(([a], [b]) => a.localeCompare(b));
}

/** A declaration with the comment before it: up to the brace or semicolon that ends it. */
function declaration(source, name) {
  const start = new RegExp(`((?:/\\*\\*(?:(?!\\*/)[\\s\\S])*\\*/\\n)?)export (?:declare )?(?:abstract )?(?:class|interface|type|function|const|enum) ${name}\\b`).exec(source);
  if (start === null) throw new Error(`${name} is exported and not declared`);
  const comment = start[1];
  const from = start.index + comment.length;
  const lines = source.slice(from).split("\n");
  // Members are indented by four; a class or an interface ends with a brace, the rest with a semicolon.
  const last = /^export (?:declare )?(?:abstract )?(?:class|interface)/.test(lines[0]) ? /^\}$/ : /^(?! {4}).*;$/;
  const end = lines.findIndex((line) => last.test(line));
  const text = lines.slice(0, end + 1).join("\n");
  return { comment: plain(comment), text: withoutInternals(text) };
}

/** A comment without its stars, and its links as code. */
function plain(comment) {
  return comment
    .replace(/^\s*\/\*\*\s?|\s*\*\/\s*$/g, "")
    .replace(/^\s*\* ?/gm, "")
    .replace(/\{@link ([^}]+)\}/g, "`$1`")
    .trim();
}

/** Without private members and what is not for users. */
function withoutInternals(text) {
  return text
    .replace(/^ {4}\/\*\*(?:(?!\*\/)[\s\S])*@internal(?:(?!\*\/)[\s\S])*\*\/\n {4}[^\n]*\n/gm, "")
    .replace(/^ {4}(?:private |#)[^\n]*\n/gm, "")
    .replace(/\{@link ([^}]+)\}/g, "$1")
    .replace(/^export declare /, "")
    .replace(/^export /, "");
}

const sections = exported().map(([name, module]) => {
  const { comment, text } = declaration(read(`${module}.d.ts`), name);
  return `## ${name}\n\n${comment}\n\n\`\`\`ts\n${text}\n\`\`\`\n`;
});
mkdirSync(new URL("docs/", import.meta.url), { recursive: true });
const head = "# Reference\n\nEvery export of the package, from its declarations. `wire` is the namespace of the protocol's own types.\n";
writeFileSync(new URL("docs/reference.md", import.meta.url), [head, ...sections].join("\n"));
