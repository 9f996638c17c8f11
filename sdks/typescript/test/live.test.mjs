// The SDK at a real server, for what the shared scenarios do not see: how it feels in this language.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { ApiError, Desktop, FailedError, namedVolume, OpenSandboxError, Pool, Sandbox, TimeoutError } from "../dist/index.js";
import { desktopHelper, Server } from "./server.mjs";

const options = { timeout: 120_000, concurrency: true };
let server;
let client;
before(async () => {
  server = await Server.start();
  client = server.client();
}, { timeout: 90_000 });
after(() => server.stop());

/** A sandbox for one test, which ends with it. */
async function sandboxFor(t, given = {}) {
  const sandbox = await client.create("host", given);
  t.after(() => sandbox.kill());
  return sandbox;
}

async function gone(id) {
  await assert.rejects(client.get(id), (error) => error instanceof ApiError && error.isNotFound && error.requestId !== undefined);
}

test("a block ends its sandbox unless it is kept", options, async () => {
  const made = await Sandbox.create("host", { client, name: "scoped", env: { A: "b" } });
  assert.equal((await made.info()).metadata.name, "scoped");
  assert.equal((await made.commands.run("echo $A")).stdout, "b\n");
  await made[Symbol.asyncDispose]();
  await gone(made.id);

  const kept = (await client.create("host")).keep();
  await kept[Symbol.asyncDispose]();
  const other = await Sandbox.connect(kept.id, { connection: server.connection() });
  await other[Symbol.asyncDispose]();
  assert.equal((await kept.info()).status.state, "Running");
  await kept.kill();
  await kept.kill();
  await gone(kept.id);
});

test("a key makes a create safe to repeat", options, async () => {
  const idempotencyKey = crypto.randomUUID();
  const [first, second] = [await client.create("host", { idempotencyKey }), await client.create("host", { idempotencyKey })];
  assert.equal(first.id, second.id);
  await first.kill();
});

test("commands: output, codes, callbacks, argv, stdin, timeouts", options, async (t) => {
  const { commands } = await sandboxFor(t);
  const said = [];
  const output = await commands.run("echo out; echo err >&2; exit 3", { onStdout: (text) => said.push(text) });
  assert.deepEqual([output.stdout, output.stderr, output.exitCode, output.isSuccess], ["out\n", "err\n", 3, false]);
  assert.deepEqual(said, ["out\n"]);
  assert.deepEqual((await commands.run("kill -9 $$")).ending, { how: "signal", signal: "killed" });
  assert.equal((await commands.run(["printf", "%s", "a b"], { cwd: "/tmp" })).stdout, "a b");
  assert.equal((await commands.run("cat", { stdin: "fed" })).stdout, "fed");
  assert.equal((await commands.run("sleep 600", { timeoutSeconds: 0.2 })).isSuccess, false);

  const id = await commands.background("echo begun; read line; echo got $line", { stdinOpen: true });
  assert.equal((await commands.status(id)).isRunning, true);
  assert.equal(await commands.writeStdin(id, "input\n", { close: true }), 6);
  assert.equal((await commands.wait(id)).exitCode, 0);
  assert.equal((await commands.logs(id)).text, "begun\ngot input\n");
  assert.ok((await commands.list()).some((known) => known.id === id));
  // Where a reader stopped, another goes on.
  const part = await commands.follow(id);
  for await (const event of part) if (event.type === "stdout") break;
  const rest = await (await commands.follow(id, part.lastSeq)).output();
  assert.deepEqual([rest.stdout, rest.toJSON().exitCode], ["got input\n", 0]);
  await commands.setEnv({ KEPT: "it's" });
  assert.equal((await commands.run("echo $KEPT")).stdout, "it's\n");
  await assert.rejects(commands.setEnv({ "a-b": "" }), { kind: "invalid_argument" });
});

test("leaving a stream early lets the command go on", options, async (t) => {
  const { commands } = await sandboxFor(t);
  const execution = await commands.stream("echo one; sleep 0.2; echo two > /tmp/two");
  for await (const event of execution) if (event.type === "stdout") break;
  assert.equal((await commands.wait(execution.id)).exitCode, 0);
  assert.equal((await commands.run("cat /tmp/two")).stdout, "two\n");
});

test("a signal aborts a call with its own reason", options, async (t) => {
  const sandbox = await sandboxFor(t);
  const reason = new Error("enough");
  const controller = new AbortController();
  const running = sandbox.commands.run("echo up; exec sleep 600", {
    signal: controller.signal,
    onStdout: () => controller.abort(reason),
  });
  await assert.rejects(running, (error) => error === reason);
  await assert.rejects(client.create("host", { signal: AbortSignal.abort(reason) }), (error) => error === reason);
  await assert.rejects(sandbox.waitForState("Paused", { timeoutSeconds: 0.2 }), TimeoutError);
});

test("files: text, bytes, streams, permissions, search", options, async (t) => {
  const { files } = await sandboxFor(t);
  await files.write("/tmp/d/text", "grüße", { mode: 0o640 });
  assert.equal(await files.readText("/tmp/d/text"), "grüße");
  assert.equal((await files.info(["/tmp/d/text"]))["/tmp/d/text"].mode, 0o640);
  async function* stream() {
    for (let at = 0; at < 64; at++) yield new Uint8Array(65536).fill(at);
  }
  await files.write("/tmp/d/big", stream());
  const big = await files.download("/tmp/d/big");
  assert.equal(big.length, 64 * 65536);
  assert.equal((await new Response(big.stream()).arrayBuffer()).byteLength, 64 * 65536);
  assert.deepEqual([...(await files.readRange("/tmp/d/big", 65535, 65537))], [0, 1]);
  await files.write("/tmp/d/blob", new Blob([new Uint8Array(2 * 1024 * 1024)]));
  assert.deepEqual((await files.list("/tmp/d")).map((file) => file.size).sort(), [2 * 1024 * 1024, 64 * 65536, 7].sort());
  assert.deepEqual((await files.search("/tmp/d", "te*")).map((file) => file.path), ["/tmp/d/text"]);
  assert.deepEqual([...(await (await files.readRangeHeader("/tmp/d/text", "bytes=0-1")).bytes())], [0x67, 0x72]);
  assert.deepEqual(await files.replaceAll({ "/tmp/d/text": { old: "g", new: "G" } }), { "/tmp/d/text": 1 });
  await files.renameAll([{ from: "/tmp/d/text", to: "/tmp/d/moved" }]);
  assert.equal(await files.readText("/tmp/d/moved"), "Grüße");
  await files.write("/tmp/d/binary", new Uint8Array([0xff]));
  await assert.rejects(files.readText("/tmp/d/binary"), { kind: "unreadable" });
  async function* failing() {
    yield new Uint8Array(10);
    throw new RangeError("the source broke");
  }
  await assert.rejects(files.write("/tmp/d/none", failing()), RangeError);
  assert.equal(await files.exists("/tmp/d/none"), false);
});

test("directories go there and back", options, async (t) => {
  const { files } = await sandboxFor(t);
  const place = mkdtempSync(join(tmpdir(), "osb-directories-"));
  t.after(() => rmSync(place, { recursive: true, force: true }));
  const long = "n".repeat(120);
  mkdirSync(join(place, "from/sub"), { recursive: true });
  writeFileSync(join(place, "from/sub", long), "long name", { mode: 0o755 });
  writeFileSync(join(place, "from/empty"), "");
  symlinkSync(`sub/${long}`, join(place, "from/link"));
  const sent = await files.uploadDirectory(join(place, "from"), "/tmp/there");
  assert.deepEqual(sent, { entries: 4, bytes: 9 });
  await files.write("/tmp/there/more", "more");
  const back = await files.downloadDirectory("/tmp/there", join(place, "to"));
  assert.deepEqual([back.bytes, back.skipped], [13, []]);
  assert.equal(readFileSync(join(place, "to/link"), "utf8"), "long name");
  assert.equal(readFileSync(join(place, "to/more"), "utf8"), "more");
});

test("code has results as types", options, async (t) => {
  const { code } = await sandboxFor(t);
  await code.run("x = 20");
  assert.equal((await code.run("x + 1")).text, "21");
  const html = await code.run(
    "class T:\n def _repr_html_(self): return '<table><tr><th>a</th></tr><tr><td>1 &lt; 2</td></tr></table>'\nT()",
  );
  assert.equal(html.results[0].kind, "table");
  assert.deepEqual(html.results[0].table, [["a"], ["1 < 2"]]);
  const figure = await code.run("class F:\n def _repr_png_(self): return b'\\x89PNG'\nF()");
  assert.equal(figure.results[0].kind, "figure");
  assert.deepEqual([...figure.results[0].figure.bytes], [0x89, 0x50, 0x4e, 0x47]);
  const failed = await code.run("1 / 0");
  assert.deepEqual([failed.error.name, failed.exitCode], ["ZeroDivisionError", undefined]);
});

test("a session remembers, a terminal is come back to", options, async (t) => {
  const sandbox = await sandboxFor(t);
  const session = await sandbox.sessions.create({ cwd: "/tmp" });
  await session.run("name=value");
  assert.equal((await session.run("echo $PWD $name")).stdout, "/tmp value\n");
  await session[Symbol.asyncDispose]();

  const terminal = await sandbox.terminals.create();
  const first = await terminal.connect();
  first.resize(101, 31);
  first.write("stty size; echo begun$((40+2))\n");
  assert.match(await until(first, "begun42"), /31 101/);
  await assert.rejects(terminal.connect(), (error) => error instanceof ApiError && error.status === 409);
  const second = await terminal.connect({ takeOver: true, since: 0 });
  await until(second, "begun42");
  let last;
  for await (const event of first) last = event;
  assert.deepEqual([last.type, last.code], ["closed", 4001]);
  second.write("exit 7\n");
  for await (const event of second) if (event.type === "exit") last = event;
  assert.equal(last.code, 7);
  await terminal.delete();
  await assert.rejects(terminal.connect(), (error) => error instanceof ApiError && error.isNotFound);
});

test("a desktop is seen and used", options, async (t) => {
  const sandbox = await sandboxFor(t);
  const desktop = new Desktop(sandbox);
  await assert.rejects(desktop.info(), (error) => error instanceof FailedError && /images browser and desktop/.test(error.message));
  await sandbox.files.write("/tmp/helper", readFileSync(desktopHelper()), { mode: 0o755 });
  // What the entrypoint of a graphical image does.
  await sandbox.commands.background(
    "Xtigervnc :1 -geometry 640x480 -depth 24 -SecurityTypes None -localhost -ac -rfbport 5901 -displayfd 3 " +
      "3>/tmp/display >/dev/null 2>&1 & until [ -s /tmp/display ]; do sleep 0.02; done; " +
      "DISPLAY=:1 xterm -geometry 80x24+0+0 & exec /tmp/helper",
  );
  await desktop.ready();
  const info = await desktop.info();
  assert.deepEqual([info.width, info.height], [640, 480]);
  const png = Buffer.from(await desktop.screenshot());
  assert.deepEqual([png.toString("latin1", 1, 4), png.readUInt32BE(16), png.readUInt32BE(20)], ["PNG", 640, 480]);
  const jpeg = await desktop.screenshot({ region: { x: 0, y: 0, width: 64, height: 48 }, format: "jpeg", quality: 50 });
  assert.deepEqual([...jpeg.slice(0, 2)], [0xff, 0xd8]);
  // In the coordinates of a picture of half the size.
  await desktop.screenshot({ maxEdge: 320 });
  const seen = await desktop.actAndSee([
    { type: "click", x: 100, y: 100 },
    { type: "type", text: "echo ünïcode >/tmp/typed" },
    { type: "key", keys: "Return" },
  ]);
  assert.notDeepEqual(Buffer.from(seen), png);
  // The middle of what that pixel of the picture shows.
  assert.deepEqual((await desktop.info()).cursor, { x: 201, y: 201 });
  assert.equal((await sandbox.commands.run("until [ -s /tmp/typed ]; do sleep 0.02; done; cat /tmp/typed")).stdout, "ünïcode\n");
  assert.equal(await desktop.waitUntilStill({ quietMilliseconds: 50 }), true);
  await desktop.setClipboard("kept");
  assert.equal(await desktop.clipboard(), "kept");
  assert.ok(Array.isArray(await desktop.windows()));
  await desktop.resize(800, 600);
  assert.equal((await desktop.info()).width, 800);
  assert.match(await desktop.liveView({ viewOnly: true }), /^http:.*opensandbox_token=/);
  await assert.rejects(desktop.act([{ type: "click", x: 5000, y: 0 }], { picture: 0 }), (error) => error instanceof ApiError && error.status === 400);
});

async function until(connection, wanted) {
  let seen = "";
  for (;;) {
    const { value, done } = await connection.next();
    assert.ok(!done, `the connection ended before ${wanted}: ${seen}`);
    if ("bytes" in value) seen += new TextDecoder().decode(value.bytes);
    if (seen.includes(wanted)) return seen;
  }
}

test("ports: requests, and plain bytes", options, async (t) => {
  const sandbox = await sandboxFor(t);
  const id = await sandbox.commands.background(
    "python3 -c \"import socket; s=socket.create_server(('127.0.0.1',7000)); print('up',flush=True); c,_=s.accept(); c.sendall(c.recv(4)[::-1]); c.close()\"",
  );
  for await (const event of await sandbox.commands.follow(id)) if (event.type === "stdout") break;
  const tunnel = await sandbox.tunnel(7000);
  const writer = tunnel.writable.getWriter();
  await writer.write(new TextEncoder().encode("abcd"));
  let text = "";
  for await (const bytes of tunnel.readable) text += new TextDecoder().decode(bytes);
  assert.equal(text, "dcba");
  tunnel.close();

  const web = await sandbox.commands.stream("cd /tmp && echo page > index.html && exec python3 -u -m http.server 7001");
  for await (const event of web) if (event.type !== "started") break;
  const answer = await sandbox.fetch(7001, "/index.html");
  assert.equal(await answer.text(), "page\n");
});

test("pause, resume, snapshot, renew, events, lists", options, async (t) => {
  const sandbox = await sandboxFor(t, { metadata: { case: "all" }, volumes: [namedVolume("kept", "typescript-kept", "/kept")] });
  const events = await client.events({ sandboxId: sandbox.id, after: 0 });
  await sandbox.pause();
  await assert.rejects(client.connect(sandbox.id), FailedError);
  await sandbox.resume();
  assert.ok(await sandbox.isHealthy());
  const states = [];
  for await (const event of events) {
    states.push(event.status?.state);
    if (states.includes("Paused")) break;
  }
  await sandbox.files.write("/root/kept", "kept");
  const snapshot = await sandbox.snapshot({ name: "copy" });
  const restored = await client.create({ snapshotId: snapshot.id });
  assert.equal(await restored.files.readText("/root/kept"), "kept");
  await restored.kill();
  assert.equal((await Array.fromAsync(client.listSnapshots({ sandboxId: sandbox.id }))).length, 1);
  await client.deleteSnapshot(snapshot.id);
  const second = await client.createSnapshot(sandbox.id);
  assert.equal((await client.waitForSnapshot(second.id)).status.state, "Ready");
  await client.deleteSnapshot(second.id);
  await assert.rejects(client.createRequest({}), (error) => error instanceof ApiError && error.details.length > 0);
  assert.ok((await sandbox.renew(900)) > new Date());
  const listed = await Array.fromAsync(client.list({ metadata: { case: "all" }, states: ["Running"], pageSize: 1 }));
  assert.deepEqual(listed.map((info) => info.id), [sandbox.id]);
  const { value } = await (await sandbox.watchMetrics()).next();
  assert.ok(value.memoryTotalMiB > 0 && (await sandbox.metrics()).cpuCount > 0);
});

test("what this server refuses is a typed error", options, async (t) => {
  const sandbox = await sandboxFor(t);
  for (const shown of [await sandbox.egress.policy(), await client.operator.networkPolicy(sandbox.id)]) assert.ok(shown);
  const calls = [
    () => sandbox.credentialVault.get(),
    () => client.operator.listPools(),
    () => sandbox.previewUrl(80, new Date(Date.now() + 60_000)),
  ];
  for (const call of calls) {
    await assert.rejects(call(), (error) => error instanceof OpenSandboxError && error.remedy !== "" && error.status >= 400);
  }
});

test("a pool has sandboxes ready", options, async () => {
  const pool = new Pool(client, "host", { maxIdle: 2, policy: "fail" });
  await pool.waitUntilWarm(60);
  const sandbox = await pool.acquire(600);
  assert.ok((await sandbox.commands.run("true")).isSuccess);
  await sandbox.kill();
  await pool.resize(0);
  await assert.rejects(pool.acquire(600), { kind: "pool_empty" });
  await pool.shutdown();
  await assert.rejects(pool.acquire(600), { kind: "pool_closed" });
});
