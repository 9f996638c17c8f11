// What needs no server, or one by hand that answers as no real one can be made to.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ApiError, Client, ConnectionConfig, ConnectionError, RichResult, StreamBrokenError } from "../dist/index.js";
import { environment, fromToml } from "../dist/config.js";
import { downloadDirectory } from "../dist/directories.js";
import { EventDecoder } from "../dist/frames.js";
import { packTar, unpackTar } from "../dist/tar.js";
import { parseToml } from "../dist/toml.js";

const bytes = (text) => new TextEncoder().encode(text);

test("event streams are read in every framing, in every pieces", () => {
  const events = [{ type: "stdout", text: "a\n\u2028ü" }, { type: "stdout", text: '}\n\n{"' }, { n: 3 }];
  const framings = {
    bare: events.map((event) => `${JSON.stringify(event)}\n\n`).join(""),
    data: events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(""),
    named: `:\n\n${events.map((event, id) => `id: ${id}\nevent: x\ndata: ${JSON.stringify(event)}\r\n\r\n`).join("")}`,
    lines: events.map((event) => `${JSON.stringify(event)}\n`).join(""),
  };
  for (const [name, text] of Object.entries(framings)) {
    const all = bytes(text);
    for (let size = 1; size <= all.length; size++) {
      const decoder = new EventDecoder("test");
      const seen = [];
      for (let at = 0; at < all.length; at += size) seen.push(...decoder.push(all.subarray(at, at + size)));
      seen.push(...decoder.finish());
      assert.deepEqual(seen, events, `${name} in pieces of ${size}`);
    }
  }
});

test("what is no event stream is refused", () => {
  for (const text of ["<html>\n", "{broken\n\n", "data: {\n\n"]) {
    assert.throws(() => new EventDecoder("test").push(bytes(text)), { kind: "unreadable" }, text);
  }
  const long = new EventDecoder("test");
  const piece = bytes("x".repeat(1024 * 1024));
  assert.throws(() => {
    for (let at = 0; at < 20; at++) long.push(piece);
  }, { kind: "unreadable" });
});

async function unpacked(archive) {
  const found = [];
  for await (const entry of unpackTar(archive)) {
    let text = "";
    for await (const piece of entry.contents()) text += new TextDecoder().decode(piece);
    found.push([entry.name, entry.type, entry.mode, text, entry.target]);
  }
  return found;
}

test("archives are read as they were written", async () => {
  const long = `${"ü".repeat(80)}/${"x".repeat(140)}`;
  const inputs = [
    { name: "d", type: "directory" },
    { name: "d/f", contents: "text", mode: 0o600 },
    { name: long, contents: new Uint8Array(1025).fill(65) },
    { name: "l", type: "symlink", target: long },
    { name: "e" },
  ];
  async function* inPieces(size) {
    const whole = Buffer.concat(await Array.fromAsync(packTar(inputs)));
    for (let at = 0; at < whole.length; at += size) yield new Uint8Array(whole.subarray(at, at + size));
  }
  for (const size of [1, 511, 512, 513, 100_000]) {
    assert.deepEqual(await unpacked(inPieces(size)), [
      ["d", "directory", 0o755, "", undefined],
      ["d/f", "file", 0o600, "text", undefined],
      [long, "file", 0o644, "A".repeat(1025), undefined],
      ["l", "symlink", 0o644, "", long],
      ["e", "file", 0o644, "", undefined],
    ]);
  }
  async function* torn() {
    yield* [(await Array.fromAsync(packTar(inputs)))[0], new Uint8Array(100)];
  }
  await assert.rejects(unpacked(torn()), { kind: "unreadable" });
});

test("an archive writes nothing outside of its directory", async (t) => {
  const place = mkdtempSync(join(tmpdir(), "osb-archive-"));
  t.after(() => rmSync(place, { recursive: true, force: true }));
  const into = (inputs) => downloadDirectory(packTar(inputs), join(place, "in"));
  await assert.rejects(into([{ name: "../out", contents: "x" }]), { kind: "unreadable" });
  await assert.rejects(into([{ name: "/out", contents: "x" }]), { kind: "unreadable" });
  const links = ["/etc/passwd", "../..", "a/../../..", ".."];
  const done = await into(links.map((target, at) => ({ name: `l${at}`, type: "symlink", target })));
  assert.deepEqual(done.skipped.length, links.length);
  await assert.rejects(into([{ name: "s", type: "symlink", target: "." }, { name: "s/f", contents: "x" }]), { kind: "unreadable" });
  symlinkSync(join(place, "out"), join(place, "in/f"));
  await into([{ name: "f", contents: "x" }]);
  assert.ok(!existsSync(join(place, "out")));
  assert.deepEqual(readdirSync(place), ["in"]);
});

test("settings come from where they are said to", () => {
  const file = '# osb\n[connection]\ndomain = "a:1" # here\nrequest_timeout = 7.5\nuse_server_proxy = true\n[output]\nx = [1, "2"]\n';
  assert.deepEqual(fromToml("f", file), { domain: "a:1", requestTimeoutSeconds: 7.5, useServerProxy: true });
  for (const wrong of ["connection = 3", "[connection]\ndomain = 3", "[connection\n", "[connection]\ndomain = a", "[connection]\nprotocol = 'ftp'"]) {
    assert.throws(() => fromToml("f", wrong), { kind: "config" }, wrong);
  }
  assert.deepEqual(parseToml("a.b = {c = '\\x'}\n\"d e\" = \"\\u00e9\\n\"\nf = 1_000\n"), parsed());
  const read = (pairs) => environment((name) => pairs[name]);
  assert.deepEqual(read({ OPEN_SANDBOX_API_KEY: " ", OPEN_SANDBOX_REQUEST_TIMEOUT: "soon", OPEN_SANDBOX_USE_SERVER_PROXY: "perhaps" }), {});
  assert.deepEqual(read({ OPEN_SANDBOX_PROTOCOL: "HTTPS", OPEN_SANDBOX_USE_SERVER_PROXY: "on" }), { protocol: "https", useServerProxy: true });
  assert.throws(() => read({ OPEN_SANDBOX_PROTOCOL: "ftp" }), { kind: "config" });
  const config = new ConnectionConfig({ domain: "https://example.com/", apiKey: "very-secret" });
  assert.deepEqual([config.baseUrl, config.rootUrl, config.scheme], ["https://example.com/v1", "https://example.com", "https"]);
  assert.match(ConnectionConfig.defaultFile() ?? "config.toml", /config\.toml$/);
  assert.throws(() => ConnectionConfig.fromFile("/no/such/file"), { kind: "config" });
  assert.ok(!JSON.stringify(config).includes("very-secret"));
  for (const domain of ["", "a b"]) assert.throws(() => new ConnectionConfig({ domain }).baseUrl, { kind: "config" });
});

function parsed() {
  const bare = (entries) => Object.assign(Object.create(null), entries);
  return bare({ a: bare({ b: bare({ c: "\\x" }) }), "d e": "é\n", f: 1000 });
}

test("results have their forms", () => {
  const svg = new RichResult({ "image/svg+xml": "<svg/>", "text/plain": "f" }, 2);
  assert.equal(svg.kind, "figure");
  assert.equal(new TextDecoder().decode(svg.figure.bytes), "<svg/>");
  assert.equal(new RichResult({ "application/json": { a: 1 } }).json.a, 1);
  assert.equal(new RichResult({ "text/latex": "x" }).kind, "other");
  assert.equal(new RichResult({ "text/markdown": "*x*" }).markdown, "*x*");
});

/** A server by hand: `answer` gets the request and how many came before. */
async function byHand(t, answer) {
  let requests = 0;
  const server = createServer((request, response) => answer(request, response, requests++));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  return { domain: `127.0.0.1:${server.address().port}`, count: () => requests };
}

test("every form of an error has a message", async (t) => {
  const forms = [
    [400, '{"code":"A","message":"no room","detail":[{"loc":["body"],"msg":"x"}]}', "no room"],
    [422, '{"detail":[{"loc":["body","timeout"],"msg":"too short"},{"loc":["body",1],"msg":"no"}]}', "body.timeout: too short; body.1: no"],
    [404, '{"detail":"Not Found"}', "Not Found"],
    [500, "Broken\nx", "Broken"],
    [500, "<html>busy</html>", "the server answered Internal Server Error"],
  ];
  const { domain } = await byHand(t, (_, response, before) => {
    const [status, body] = forms[before];
    response.writeHead(status, { "x-request-id": `r${before}` }).end(body);
  });
  const client = new Client(new ConnectionConfig({ domain }));
  for (const [at, [status, , reason]] of forms.entries()) {
    await assert.rejects(client.health(), (error) => {
      assert.ok(error instanceof ApiError);
      assert.deepEqual([error.status, error.reason, error.requestId], [status, reason, `r${at}`]);
      return true;
    });
  }
});

/** An address where nobody listens, of a part of loopback that nobody else uses. */
async function deserted() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.88.77.66", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return `127.88.77.66:${port}`;
}

test("only what is safe is sent again", async (t) => {
  const retry = { attempts: 3, firstDelaySeconds: 0.001, longestDelaySeconds: 0.005 };
  const busy = (response) => response.writeHead(503, { "retry-after": "0" }).end('{"code":"BUSY","message":"not now"}');
  const { domain, count } = await byHand(t, (request, response, before) => {
    if (request.method === "GET" && before >= 2) response.end('{"status":"healthy"}');
    else busy(response);
  });
  const client = new Client(new ConnectionConfig({ domain, retry }));
  assert.equal((await client.health()).status, "healthy");
  assert.equal(count(), 3, "reading is repeated");
  await assert.rejects(client.create("host"), { code: "BUSY" });
  assert.equal(count(), 4, "making is not");
  await assert.rejects(client.create("host", { idempotencyKey: "k" }), { code: "BUSY" });
  assert.equal(count(), 8, "except by a key that makes it safe");
  await assert.rejects(client.sandbox("..").info(), { kind: "invalid_argument" });

  const nowhere = new Client(new ConnectionConfig({ domain: await deserted(), retry: { attempts: 0 } }));
  await assert.rejects(nowhere.health(), (error) => error instanceof ConnectionError && error.isUnsent && error.isRetryable);
});

test("a stream without numbers says that it broke", async (t) => {
  // As the published daemon sends them: bare objects, lines without their ends, no numbers.
  const events = [
    { type: "init", text: "c1", timestamp: 1 },
    { type: "stdout", text: "l1", timestamp: 2 },
    { type: "stdout", text: "l2", timestamp: 3 },
    { type: "execution_complete", execution_time: 4, timestamp: 4 },
  ];
  let runs = 0;
  const { domain } = await byHand(t, (request, response) => {
    if (request.url.includes("/endpoints/")) return response.end(JSON.stringify({ endpoint: request.headers.host }));
    const sent = runs++ === 0 ? events : events.slice(0, 2);
    response.end(sent.map((event) => `${JSON.stringify(event)}\n\n`).join(""));
  });
  const { commands } = new Client(new ConnectionConfig({ domain })).sandbox("s1");
  const output = await commands.run("x");
  assert.deepEqual([output.stdout, output.exitCode, output.tookSeconds], ["l1\nl2\n", 0, 0.004]);
  const seen = [];
  const execution = await commands.stream("x");
  await assert.rejects(async () => {
    for await (const event of execution) seen.push(event);
  }, StreamBrokenError);
  assert.deepEqual(seen.at(-1), { type: "stdout", text: "l1\n" });
  assert.ok((await execution.next()).done, "nothing comes after an error");
});

test("every public method is called by a test or by the runner of the scenarios", () => {
  const folder = (name) => new URL(`../${name}/`, import.meta.url);
  const texts = (name, ending) => readdirSync(folder(name)).filter((file) => file.endsWith(ending)).map((file) => readFileSync(new URL(file, folder(name)), "utf8"));
  const calls = ["test", "conformance", "examples"].flatMap((name) => texts(name, ".mjs")).join("\n");
  const exported = new Set(readFileSync(new URL("index.d.ts", folder("dist")), "utf8").match(/\w+/g));
  const missing = [];
  for (const text of texts("dist", ".d.ts")) {
    for (const [, name, body] of text.matchAll(/^export declare class (\w+)[^{]*\{\n([\s\S]*?)^\}/gm)) {
      if (!exported.has(name)) continue;
      for (const [, comment, method] of body.matchAll(/((?:\/\*\*(?:(?!\*\/)[\s\S])*\*\/\s*)?)^ {4}(?:static |get )?(\w+)(?:\(|: )/gm)) {
        if (method === "constructor" || comment.includes("@internal")) continue;
        if (!new RegExp(`\\b${method}\\b`).test(calls)) missing.push(`${name}.${method}`);
      }
    }
  }
  assert.deepEqual(missing, []);
});
