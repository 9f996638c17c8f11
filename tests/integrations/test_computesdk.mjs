// ComputeSDK with our adapter, at a real server with an ingress gateway.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { compute } from "computesdk";
import { opensandbox } from "osb-computesdk";

const { API_KEY, Server } = await import(process.env.OSB_TEST_SERVER);
const IMAGE = "host";
const options = { timeout: 120_000 };
let server;
let sandboxes;

before(async () => {
  server = await Server.start(["ingress.mode=gateway", "ingress.gateway.port=0", "ingress.gateway.route.mode=uri"]);
  sandboxes = compute({ provider: opensandbox({ image: IMAGE, connection: { domain: server.address, apiKey: API_KEY } }) });
}, { timeout: 90_000 });
after(() => server.stop());

async function sandboxFor(t, given = {}) {
  const sandbox = await sandboxes.sandbox.create(given);
  t.after(() => sandboxes.sandbox.destroy(sandbox.sandboxId));
  return sandbox;
}

test("what a sandbox was made with is there", options, async (t) => {
  const sandbox = await sandboxFor(t, {
    name: "made", metadata: { team: 7 }, envs: { GREETING: "hello" }, timeout: 90_000, cpu: 1, memoryMiB: 256,
    directory: "/tmp/work", opensandbox: { secureAccess: true },
  });
  assert.equal(sandbox.provider, "opensandbox");
  const info = await sandbox.getInfo();
  assert.deepEqual([info.id, info.status, info.metadata], [sandbox.sandboxId, "running", { name: "made", team: "7" }]);
  assert.ok(Math.abs(info.timeout - 90_000) < 5_000, `${info.timeout}`);
  assert.equal((await sandbox.runCommand("echo $GREETING; pwd")).stdout, "hello\n/tmp/work\n");
  const limit = await sandbox.runCommand("cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null");
  assert.equal(Number.parseInt(limit.stdout, 10), 256 * 2 ** 20);
  assert.equal((await sandboxes.sandbox.getById(sandbox.sandboxId)).sandboxId, sandbox.sandboxId);
  assert.deepEqual((await sandboxes.sandbox.list()).map((each) => each.sandboxId), [sandbox.sandboxId]);
});

test("commands end as they ended, and are streamed as they run", options, async (t) => {
  const sandbox = await sandboxFor(t);
  const failed = await sandbox.runCommand("echo out; echo err >&2; exit 3");
  assert.deepEqual([failed.stdout, failed.stderr, failed.exitCode], ["out\n", "err\n", 3]);
  assert.ok(failed.durationMs >= 0);
  assert.equal((await sandbox.runCommand("echo $A; pwd", { cwd: "/usr", env: { A: "b" } })).stdout, "b\n/usr\n");
  assert.equal((await sandbox.runCommand("kill -9 $$")).exitCode, -1);
  assert.notEqual((await sandbox.runCommand("sleep 600", { timeout: 300 })).exitCode, 0);

  // The command waits for a file that is made when its first line has come.
  const seen = [];
  const made = Promise.withResolvers();
  const running = sandbox.runCommand("echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo second >&2", {
    onStdout: (text) => {
      seen.push(text);
      made.resolve(sandbox.filesystem.writeFile("/tmp/go", ""));
    },
    onStderr: (text) => seen.push(text),
  });
  await made.promise;
  assert.equal((await running).exitCode, 0);
  assert.deepEqual(seen, ["first\n", "second\n"]);

  await sandbox.runCommand("until [ -e /tmp/later ]; do sleep 0.02; done; echo done >/tmp/ended", { background: true });
  await sandbox.filesystem.writeFile("/tmp/later", "");
  assert.equal((await sandbox.runCommand("until [ -s /tmp/ended ]; do sleep 0.02; done; cat /tmp/ended")).stdout, "done\n");
});

test("files", options, async (t) => {
  const { filesystem } = await sandboxFor(t);
  await filesystem.mkdir("/tmp/a/b");
  await filesystem.writeFile("/tmp/a/file", "ünïcode\n");
  assert.equal(await filesystem.readFile("/tmp/a/file"), "ünïcode\n");
  const entries = (await filesystem.readdir("/tmp/a")).sort((one, other) => one.name.localeCompare(other.name));
  assert.deepEqual(entries.map(({ name, type }) => [name, type]), [["b", "directory"], ["file", "file"]]);
  assert.deepEqual([entries[1].size, entries[1].modified instanceof Date], [10, true]);
  await filesystem.remove("/tmp/a/file");
  assert.equal(await filesystem.exists("/tmp/a/file"), false);
  await filesystem.remove("/tmp/a");
  assert.equal(await filesystem.exists("/tmp/a"), false);
  await assert.rejects(filesystem.readFile("/tmp/a/file"), /file/i);
});

test("an address of a port opens without a header", options, async (t) => {
  const sandbox = await sandboxFor(t);
  await sandbox.filesystem.mkdir("/tmp/site");
  await sandbox.filesystem.writeFile("/tmp/site/page.txt", "shown");
  await sandbox.runCommand(
    "cd /tmp/site && exec python3 -c 'import http.server\n" +
      "server = http.server.HTTPServer((\"\", 8127), http.server.SimpleHTTPRequestHandler)\n" +
      "open(\"/tmp/listening\", \"w\").close()\nserver.serve_forever()'",
    { background: true },
  );
  await sandbox.runCommand("until [ -e /tmp/listening ]; do sleep 0.02; done");
  const url = await sandbox.getUrl({ port: 8127 });
  const answer = await fetch(`${url}/page.txt`);
  assert.deepEqual([answer.status, await answer.text()], [200, "shown"]);
  assert.match(await sandbox.getUrl({ port: 8127, protocol: "ws" }), /^ws:/);
});

test("a snapshot is a sandbox to come", options, async (t) => {
  const first = await sandboxFor(t);
  await first.filesystem.writeFile("/root/kept", "kept");
  const snapshot = await sandboxes.snapshot.create(first.sandboxId, { name: "state" });
  const listed = (await sandboxes.snapshot.list()).map(({ id }) => id);
  assert.deepEqual([snapshot.provider, listed.includes(snapshot.id)], ["opensandbox", true]);
  const second = await sandboxFor(t, { snapshotId: snapshot.id });
  assert.equal(await second.filesystem.readFile("/root/kept"), "kept");
  await sandboxes.sandbox.destroy(second.sandboxId);
  await sandboxes.snapshot.delete(snapshot.id);
  await assert.rejects(sandboxes.snapshot.create(first.sandboxId, { metadata: { a: "b" } }), /no metadata/);
});

test("what is gone is gone, and what is wrong says so", options, async () => {
  const sandbox = await sandboxes.sandbox.create();
  await sandbox.destroy();
  await sandboxes.sandbox.destroy(sandbox.sandboxId);
  assert.equal(await sandboxes.sandbox.getById(sandbox.sandboxId), null);
  await assert.rejects(sandboxes.sandbox.create({ image: "127.0.0.1:1/no/such:image" }), /PULL_FAILED|cannot|pull/i);
  const elsewhere = compute({ provider: opensandbox({ image: IMAGE, connection: { domain: "127.0.0.1:1" } }) });
  await assert.rejects(elsewhere.sandbox.create(), /cannot be reached/);
});
