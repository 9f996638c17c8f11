// deepagents (JavaScript) with our adapter: every method of its backend, and an agent with a scripted model.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { FakeListChatModel } from "@langchain/core/utils/testing";
import { createDeepAgent } from "deepagents";
import { Client, ConnectionConfig } from "opensandbox";
import { OsbSandbox } from "osb-deepagents";

const { API_KEY, Server } = await import(process.env.OSB_TEST_SERVER);
const options = { timeout: 120_000 };
const bytes = (text) => new TextEncoder().encode(text);
let server;
let sandbox;
let backend;

before(async () => {
  server = await Server.start();
  const client = new Client(new ConnectionConfig({ domain: server.address, apiKey: API_KEY }));
  sandbox = await client.create("host");
  backend = new OsbSandbox(sandbox);
}, { timeout: 90_000 });
after(async () => {
  await sandbox?.kill();
  await server.stop();
});

test("commands end as they ended", options, async () => {
  assert.equal(backend.id, sandbox.id);
  assert.deepEqual(await backend.execute("echo out; echo err >&2; exit 3"), { output: "out\nerr\n", exitCode: 3, truncated: false });
  assert.equal((await backend.execute("kill -9 $$")).exitCode, 137);
  assert.equal((await backend.execute("no-such-program")).exitCode, 127);
  const late = await new OsbSandbox(sandbox, { timeoutSeconds: 1 }).execute("echo before; exec sleep 60");
  assert.deepEqual(late, { output: "before\n\nthe command did not end within 1 s", exitCode: 124, truncated: false });
  const long = await backend.execute("head -c 11000000 /dev/zero | tr '\\0' x");
  assert.deepEqual([long.truncated, long.output.length, long.exitCode], [true, 10 * 1024 * 1024, 0]);
});

test("files go there and back, each with its own error", options, async () => {
  const sent = await backend.uploadFiles([["/tmp/up/a", bytes("ünïcode")], ["relative", bytes("")], ["/tmp", bytes("")]]);
  assert.deepEqual(sent.map(({ error }) => error), [null, "invalid_path", "is_directory"]);
  const got = await backend.downloadFiles(["/tmp/up/a", "/tmp/up/none", "/tmp", "/tmp/up/a/b", "relative"]);
  assert.equal(new TextDecoder().decode(got[0].content), "ünïcode");
  assert.deepEqual(got.map(({ error }) => error), [null, "file_not_found", "is_directory", "invalid_path", "invalid_path"]);
  assert.deepEqual(got.slice(1).map(({ content }) => content), [null, null, null, null]);
});

test("what deepagents makes of that", options, async () => {
  assert.ifError((await backend.write("/tmp/tree/one.txt", "first line\nsecond line\n")).error);
  await backend.uploadFiles([["/tmp/tree/sub/two.md", bytes("second of two\n")]]);
  const listed = await backend.ls("/tmp/tree");
  assert.deepEqual(listed.files.map(({ path, is_dir }) => [path.replace(/\/$/, ""), is_dir]).sort(), [["/tmp/tree/one.txt", false], ["/tmp/tree/sub", true]]);
  assert.match(String((await backend.read("/tmp/tree/one.txt", 1, 1)).content), /second line/);
  assert.ifError((await backend.edit("/tmp/tree/one.txt", "first", "changed")).error);
  assert.match(String((await backend.read("/tmp/tree/one.txt")).content), /changed line/);
  const found = await backend.grep("second", "/tmp/tree");
  assert.deepEqual(found.matches.map(({ path }) => path).sort(), ["/tmp/tree/one.txt", "/tmp/tree/sub/two.md"]);
  const matched = await backend.glob("**/*.md", "/tmp/tree");
  assert.deepEqual(matched.files.map(({ path }) => path.split("/").pop()), ["two.md"]);
  assert.ok((await backend.read("/tmp/tree/none")).error);
});

test("an agent uses it", options, async () => {
  /** Says one message after the other, and takes tools. */
  class Scripted extends FakeListChatModel {
    at = 0;
    script = [
      new AIMessage({ content: "", tool_calls: [{ name: "execute", args: { command: "echo $((6 * 7)) | tee /tmp/answer" }, id: "1" }] }),
      new AIMessage("done"),
    ];
    bindTools() {
      return this;
    }
    async _generate() {
      const message = this.script[this.at++];
      return { generations: [{ message, text: String(message.content) }] };
    }
  }
  const agent = createDeepAgent({ model: new Scripted({ responses: [""] }), backend });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: "what is six times seven?" }] });
  assert.match(String(messages.at(-2).content), /42/);
  assert.equal(messages.at(-1).content, "done");
  assert.equal(await sandbox.files.readText("/tmp/answer"), "42\n");
});
