// How fast the SDK is beside the published one, in one run against the same servers: a stub that
// answers at once, which leaves the client's own time, and a real server. Prints a table, and whether what is
// promised was kept; ends with an error where it was not.
//
//     sdks/typescript/bench/run [RUNTIME]

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import * as published from "@alibaba-group/opensandbox";
import { Client, ConnectionConfig } from "opensandbox";
import { API_KEY, Server } from "../test/server.mjs";

const ROUNDS = 100;
const REAL_ROUNDS = 30;
const LINES = 1_000_000;
const AT_ONCE = 200;
/** A million lines are some 70 MiB on the wire: who keeps them adds more than this. */
const MEMORY_MIB_MAX = 64;

const median = (times) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];

/** Both clients behind the same few words. */
const clients = (domain) => {
  const client = new Client(new ConnectionConfig({ domain, apiKey: API_KEY }));
  const connectionConfig = new published.ConnectionConfig({ domain, apiKey: API_KEY });
  return {
    ours: {
      create: () => client.create("host"),
      first: async (sandbox, command) => {
        const execution = await sandbox.commands.stream(command);
        for await (const event of execution) if (event.type === "stdout") break;
      },
      lines: async (sandbox, command) => {
        let lines = 0;
        // A line that the daemon had read half of comes as two events.
        for await (const event of await sandbox.commands.stream(command)) if (event.type === "stdout" && event.text.endsWith("\n")) lines++;
        return lines;
      },
      end: (sandbox) => sandbox.kill(),
    },
    published: {
      create: () => published.Sandbox.create({ connectionConfig, image: "host" }),
      first: async (sandbox, command) => {
        for await (const event of sandbox.commands.runStream(command)) if (event.type === "stdout") break;
      },
      lines: async (sandbox, command) => {
        let lines = 0;
        for await (const event of sandbox.commands.runStream(command)) if (event.type === "stdout") lines++;
        return lines;
      },
      end: (sandbox) => sandbox.kill(),
    },
  };
};

async function firstOutput({ create, first, end }, rounds) {
  const times = [];
  // The first rounds also pay for compiling the code.
  for (let round = -10; round < rounds; round++) {
    const begun = performance.now();
    const sandbox = await create();
    await first(sandbox, "echo hi");
    if (round >= 0) times.push(performance.now() - begun);
    await end(sandbox);
  }
  return median(times);
}

async function consume({ create, lines, end }, command, tenth) {
  const sandbox = await create();
  // Pays for compiling the code and for the heap that the runtime starts with, as the first rounds above do.
  await lines(sandbox, tenth);
  globalThis.gc?.();
  const before = process.memoryUsage.rss();
  let most = before;
  const watch = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss());
  }, 20);
  const begun = performance.now();
  const spent = process.cpuUsage();
  const count = await lines(sandbox, command);
  const seconds = (performance.now() - begun) / 1000;
  const { user, system } = process.cpuUsage(spent);
  clearInterval(watch);
  if (count < LINES) throw new Error(`${count} lines came instead of ${LINES}`);
  await end(sandbox);
  return [Math.round(LINES / seconds), Math.round((most - before) / 2 ** 20), Math.round((user + system) / 1000)];
}

async function atOnce({ create, first, end }) {
  const begun = performance.now();
  const sandboxes = await Promise.all(Array.from({ length: AT_ONCE }, create));
  await Promise.all(sandboxes.map((sandbox) => first(sandbox, "echo hi")));
  const seconds = (performance.now() - begun) / 1000;
  await Promise.all(sandboxes.map(end));
  return seconds;
}

function row(what, ours, theirs) {
  console.log(`| ${what} | ${ours} | ${theirs} |`);
}

const child = spawn(process.execPath, [fileURLToPath(new URL("stub.mjs", import.meta.url))], { stdio: ["ignore", "pipe", "inherit"] });
const [stub] = await once(createInterface({ input: child.stdout }), "line");
console.log(`${process.versions.bun ? `Bun ${process.versions.bun}` : `Node ${process.versions.node}`}\n`);
row("", "ours", "published");
row("---", "---", "---");
const isolated = clients(stub);
const both = async (measure) => [await measure("ours"), await measure("published")];
const own = await both((name) => firstOutput(isolated[name], ROUNDS));
row("create to first output at the stub, ms (median)", ...own.map((ms) => ms.toFixed(2)));
const many = await both((name) => consume(isolated[name], "many", "tenth"));
row("1,000,000 lines from the stub, lines/s", ...many.map(([rate]) => rate));
row("memory they add, MiB", ...many.map(([, mebibytes]) => mebibytes));
// A busy machine hardly changes this one.
row("processor time they take, ms", ...many.map(([, , milliseconds]) => milliseconds));
child.kill();
const promises = [
  ["the client's own share, ms", own[0], "<=", 5],
  ["lines/s", many[0][0], ">=", 500_000],
  ["memory that a million lines add, MiB", many[0][1], "<=", MEMORY_MIB_MAX],
];

const server = await Server.start();
try {
  const real = clients(server.address);
  const first = await both((name) => firstOutput(real[name], REAL_ROUNDS));
  row("create to first output at a real server, ms (median)", ...first.map((ms) => ms.toFixed(2)));
  const lines = await both((name) => consume(real[name], `seq ${LINES}`, `seq ${LINES / 10}`));
  row("1,000,000 lines from a real sandbox, lines/s", ...lines.map(([rate]) => rate));
  row("memory they add, MiB", ...lines.map(([, mebibytes]) => mebibytes));
  const together = await both((name) => atOnce(real[name]));
  row(`${AT_ONCE} sandboxes made and used at once, s`, ...together.map((seconds) => seconds.toFixed(2)));
} finally {
  await server.stop();
}
for (const [what, value, sign, limit] of promises) {
  const isKept = sign === "<=" ? value <= limit : value >= limit;
  if (!isKept) process.exitCode = 1;
  console.log(`${isKept ? "kept  " : "BROKEN"} ${what}: ${Math.round(value * 10) / 10} ${sign} ${limit}`);
}
