// The calls of sdks/conformance/README.md, by name: the object they are made on, their arguments and
// a signal in, the result out. What a call leaves under a name comes as { value, shown, close }.

import { createHash } from "node:crypto";
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, ConnectionConfig, Pool, Sandbox } from "../dist/index.js";
import { packTar, unpackTar } from "../dist/tar.js";
import { event, fileInfo, output, terminalEvent } from "./shapes.mjs";

const seconds = (milliseconds) => (milliseconds == null ? undefined : milliseconds / 1000);
/** Absent and null are the same, except where null means something. */
const given = (value) => (value === null ? undefined : value);
const size = ({ size }) => (size == null ? undefined : { columns: size[0], rows: size[1] });
const octal = (text) => (text == null ? undefined : Number.parseInt(text, 8));

function connection({ domain, api_key, protocol, request_timeout_ms, use_server_proxy, headers, retry }) {
  return new ConnectionConfig({
    domain: given(domain),
    apiKey: given(api_key),
    protocol: given(protocol),
    requestTimeoutSeconds: seconds(request_timeout_ms),
    useServerProxy: given(use_server_proxy),
    headers: given(headers),
    retry: retry && {
      ...(retry.attempts == null ? {} : { attempts: retry.attempts }),
      ...(retry.first_delay_ms == null ? {} : { firstDelaySeconds: retry.first_delay_ms / 1000 }),
      ...(retry.longest_delay_ms == null ? {} : { longestDelaySeconds: retry.longest_delay_ms / 1000 }),
    },
  });
}

function source({ image, snapshot_id, template_id }) {
  if (snapshot_id != null) return { snapshotId: snapshot_id };
  return template_id == null ? image : { templateId: template_id };
}

function createOptions(with_, signal) {
  return {
    ...("lifetime_s" in with_ ? { lifetimeSeconds: with_.lifetime_s } : {}),
    name: given(with_.name),
    renewOnAccessSeconds: given(with_.renew_on_access_s),
    idempotencyKey: given(with_.idempotency_key),
    env: given(with_.env),
    metadata: given(with_.metadata),
    resources: given(with_.resources),
    entrypoint: given(with_.entrypoint),
    volumes: given(with_.volumes),
    networkPolicy: given(with_.network_policy),
    credentialProxy: given(with_.credential_proxy),
    secureAccess: given(with_.secure_access),
    extensions: given(with_.extensions),
    platform: given(with_.platform),
    lifecycle: given(with_.lifecycle),
    readyTimeoutSeconds: seconds(with_.ready_timeout_ms),
    skipReady: given(with_.skip_ready),
    signal,
  };
}

const commandOptions = (with_, signal) => ({
  cwd: given(with_.cwd),
  env: given(with_.env),
  timeoutSeconds: seconds(with_.timeout_ms),
  uid: given(with_.uid),
  gid: given(with_.gid),
  stdin: given(with_.stdin),
  stdinOpen: given(with_.stdin_open),
  signal,
});
const commandOf = (with_) => with_.argv ?? with_.command;
const codeOptions = (with_, signal) => ({
  language: given(with_.language),
  context: given(with_.context),
  timeoutSeconds: seconds(with_.timeout_ms),
  signal,
});
const sessionOptions = (with_, signal) => ({ cwd: given(with_.cwd), timeoutSeconds: seconds(with_.timeout_ms), signal });

const filter = (with_, signal) => ({
  states: given(with_.states),
  metadata: given(with_.metadata),
  sandboxId: given(with_.sandbox_id),
  name: given(with_.name),
  page: given(with_.page),
  pageSize: given(with_.page_size),
  signal,
});

const held = (value, shown, close) => ({ value, shown, close });
const heldSandbox = (sandbox) => held(sandbox, { id: sandbox.id });
const heldStream = (stream) => held(stream, null, (s) => s.return());
const heldExecution = (execution) => held(execution, null, (e) => e.return());

async function collected(items, limit) {
  const all = [];
  for await (const item of items) {
    all.push(item);
    if (limit != null && all.length >= limit) break;
  }
  return all;
}

async function counted(stream) {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const piece of stream) {
    hash.update(piece);
    bytes += piece.length;
  }
  return { bytes, sha256: hash.digest("hex") };
}

/** A root filesystem or a directory as tar, with the directories on the way. */
function packed(files) {
  const inputs = [];
  const seen = new Set();
  for (const [name, contents] of Object.entries(files)) {
    const steps = name.replace(/^\/+/, "").split("/");
    for (let depth = 1; depth < steps.length; depth++) {
      const directory = steps.slice(0, depth).join("/");
      if (!seen.has(directory)) inputs.push({ name: directory, type: "directory" });
      seen.add(directory);
    }
    inputs.push({ name: steps.join("/"), contents });
  }
  return packTar(inputs);
}

async function entries(archive, isOfFiles) {
  const names = [];
  let bytes = 0;
  async function* passing() {
    for await (const piece of archive) {
      bytes += piece.length;
      yield piece;
    }
  }
  for await (const entry of unpackTar(passing())) if (!isOfFiles || entry.type === "file") names.push(entry.name.replace(/^\.\//, ""));
  return { bytes, entries: names.sort() };
}

/** Bytes that anyone can make again: each is its place modulo 251. */
async function* madeUp(length) {
  const piece = Uint8Array.from({ length: 251 * 256 }, (_, at) => at % 251);
  for (let left = length; left > 0; left -= piece.length) yield piece.subarray(0, Math.min(left, piece.length));
}

const filesOf = (sandbox, with_) => (with_.as_user ? sandbox.files.asUser(...with_.as_user) : sandbox.files);
const base64 = (bytes) => ({ base64: Buffer.from(bytes).toString("base64") });
const contentsOf = ({ text, base64: encoded }) => (encoded == null ? (text ?? "") : new Uint8Array(Buffer.from(encoded, "base64")));
const permission = ({ mode, owner, group }) => ({ mode: octal(mode), owner: given(owner), group: given(group) });

async function inScope(client, with_, signal) {
  let id;
  try {
    const sandbox = await client.create(source(with_), createOptions(with_, signal));
    id = sandbox.id;
    // What `await using` does, in words that Node 22 knows.
    try {
      if (with_.keep) sandbox.keep();
      if (with_.fail) throw new Error("left by an error");
    } finally {
      await sandbox[Symbol.asyncDispose]();
    }
  } catch (error) {
    if (!with_.fail || error.message !== "left by an error") throw error;
  }
  return { id };
}

/** Settings from an environment and a file alone: the variables of this process, put back afterwards. */
async function loaded({ environment = {}, file }) {
  const home = mkdtempSync(join(tmpdir(), "osb-config-"));
  const before = { ...process.env };
  try {
    for (const name of Object.keys(process.env)) if (name.startsWith("OPEN_SANDBOX_")) delete process.env[name];
    Object.assign(process.env, environment, { HOME: home });
    if (file != null) {
      mkdirSync(join(home, ".opensandbox"));
      writeFileSync(join(home, ".opensandbox/config.toml"), file);
    }
    const config = ConnectionConfig.load();
    return {
      base_url: config.baseUrl,
      request_timeout_ms: config.requestTimeoutSeconds * 1000,
      use_server_proxy: config.useServerProxy,
      has_api_key: config.apiKey !== undefined,
    };
  } finally {
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
    rmSync(home, { recursive: true, force: true });
  }
}

async function readTunnel(tunnel, length) {
  tunnel.reader ??= tunnel.readable.getReader();
  tunnel.rest ??= Buffer.alloc(0);
  while (tunnel.rest.length < length) {
    const { value, done } = await tunnel.reader.read();
    if (done) break;
    tunnel.rest = Buffer.concat([tunnel.rest, value]);
  }
  const text = tunnel.rest.subarray(0, length).toString("utf8");
  tunnel.rest = tunnel.rest.subarray(length);
  return { text };
}

async function next(iterator, shape = (value) => value) {
  const { value, done } = await iterator.next();
  return done ? null : shape(value);
}

const commandStatus = (status) => ({
  id: status.id,
  content: status.content,
  running: status.isRunning,
  exit_code: status.exitCode,
  error: status.error,
  started_at: status.startedAt.toISOString(),
  finished_at: status.finishedAt?.toISOString(),
});
const metrics = (sample) => ({
  cpu_count: sample.cpuCount,
  cpu_used_pct: sample.cpuUsedPercent,
  mem_total_mib: sample.memoryTotalMiB,
  mem_used_mib: sample.memoryUsedMiB,
  timestamp: sample.at.getTime(),
});

export const CALLS = {
  "config.load": (_, w) => loaded(w),
  "client.new": (_, w) => held(new Client(connection(w)), null),
  "client.health": (c, _, signal) => c.health({ signal }),
  "client.version": (c, _, signal) => c.version({ signal }),
  "client.get": (c, w, signal) => c.get(w.id, { signal }),
  "client.kill": (c, w, signal) => c.kill(w.id, { signal }),
  "client.list": (c, w, signal) => c.listPage(filter(w, signal)),
  "client.list_all": (c, w, signal) => collected(c.list(filter(w, signal)), w.limit),
  "client.pause": (c, w, signal) => c.pause(w.id, { signal }),
  "client.resume": (c, w, signal) => c.resume(w.id, { signal }),
  "client.request": (c, w, signal) => c.request(w.method, w.path, w.body, { signal }),
  "client.get_snapshot": (c, w, signal) => c.getSnapshot(w.id, { signal }),
  "client.delete_snapshot": (c, w, signal) => c.deleteSnapshot(w.id, { signal }),
  "client.list_snapshots": (c, w, signal) => c.listSnapshotsPage(filter(w, signal)),
  "client.list_all_snapshots": (c, w, signal) => collected(c.listSnapshots(filter(w, signal)), w.limit),
  "client.create_template": (c, w, signal) => c.operator.createTemplate(w.request, { signal }),
  "client.get_template": (c, w, signal) => c.operator.getTemplate(w.id, { signal }),
  "client.list_templates": (c, w, signal) => c.operator.listTemplates(filter(w, signal)),
  "client.delete_template": (c, w, signal) => c.operator.deleteTemplate(w.id, { signal }),
  "client.create_pool": (c, w, signal) => c.operator.createPool(w.request, { signal }),
  "client.get_pool": (c, w, signal) => c.operator.getPool(w.name, { signal }),
  "client.list_pools": (c, _, signal) => c.operator.listPools({ signal }),
  "client.update_pool": (c, w, signal) => c.operator.updatePool(w.name, w.request, { signal }),
  "client.delete_pool": (c, w, signal) => c.operator.deletePool(w.name, { signal }),
  "client.network_policy": (c, w, signal) => c.operator.networkPolicy(w.id, { signal }),
  "client.set_network_policy": (c, w, signal) => c.operator.setNetworkPolicy(w.id, w.policy, { signal }),
  "client.patch_network_policy": (c, w, signal) => c.operator.patchNetworkPolicy(w.id, w.rules, { signal }),
  "client.delete_network_policy": (c, w, signal) => c.operator.deleteNetworkPolicy(w.id, w.targets, { signal }),
  "client.events": async (c, w) => heldStream(await c.events({ sandboxId: given(w.sandbox_id), after: given(w.after) })),
  "client.follow_logs": async (c, w) => heldStream(await c.followLogs(w.id, { tail: given(w.tail) })),
  "client.audit_events": (c, w, signal) =>
    c.operator.auditEvents({ resource: given(w.resource), actor: given(w.actor), before: given(w.before), limit: given(w.limit), signal }),
  "client.diagnostic_logs": (c, w, signal) => c.operator.diagnosticLogs(w.id, w.scope, { signal }),
  "client.diagnostic_events": (c, w, signal) => c.operator.diagnosticEvents(w.id, w.scope, { signal }),
  "client.diagnostics_text": async (c, w, signal) => ({ text: await c.operator.diagnosticsText(w.id, w.kind, w.query ?? {}, { signal }) }),
  "client.metrics_text": async (c, _, signal) => ({ text: await c.operator.metricsText({ signal }) }),
  "client.openapi": (c, _, signal) => c.operator.openapi({ signal }),
  "client.report_event": (c, w, signal) => c.operator.reportEvent(w.event, { signal }),

  "images.list": (c, _, signal) => c.images.list({ signal }),
  "images.prune": (c, _, signal) => c.images.prune({ signal }),
  "images.pull": async (c, w) => heldStream(await c.images.pull(w.image, { platform: given(w.platform) })),
  "images.import": (c, w, signal) => c.images.import(packed(w.files), { name: given(w.name), signal }),
  "images.export": async (c, w, signal) => entries(await c.images.export(w.reference, { signal }), false),
  "images.tag": (c, w, signal) => c.images.tag(w.reference, w.name, { signal }),
  "images.remove": (c, w, signal) => c.images.remove(w.reference, { signal }),
  "keys.list": (c, _, signal) => c.keys.list({ signal }),
  "keys.create": (c, w, signal) => c.keys.create(w.request, { signal }),
  "keys.create_token": (c, w, signal) => c.keys.createToken(w.request, { signal }),
  "keys.rotate": (c, w, signal) => c.keys.rotate(w.id, { graceSeconds: given(w.grace_s), signal }),
  "keys.revoke": (c, w, signal) => c.keys.revoke(w.id, { signal }),
  "tenants.list": (c, _, signal) => c.tenants.list({ signal }),
  "tenants.get": (c, w, signal) => c.tenants.get(w.name, { signal }),
  "tenants.create": (c, w, signal) => c.tenants.create(w.name, { signal }),
  "tenants.remove": (c, w, signal) => c.tenants.remove(w.name, { signal }),
  "volumes.list": (c, _, signal) => c.volumes.list({ signal }),
  "volumes.create": (c, w, signal) => c.volumes.create(w.name, { signal }),
  "volumes.remove": (c, w, signal) => c.volumes.remove(w.name, { force: given(w.force), signal }),

  "sandbox.create": async (c, w, signal) => heldSandbox(await c.create(source(w), createOptions(w, signal))),
  "sandbox.connect": async (c, w, signal) => {
    const options = { readyTimeoutSeconds: seconds(w.timeout_ms), resume: given(w.resume), client: c, signal };
    return heldSandbox(await Sandbox.connect(w.id, options));
  },
  "sandbox.scope": inScope,
  "sandbox.info": (s, _, signal) => s.info({ signal }),
  "sandbox.metrics": async (s, _, signal) => metrics(await s.metrics({ signal })),
  "sandbox.kill": (s, _, signal) => s.kill({ signal }),
  "sandbox.pause": (s, _, signal) => s.pause({ signal }),
  "sandbox.resume": (s, _, signal) => s.resume({ signal }),
  "sandbox.ping": (s, _, signal) => s.ping({ signal }),
  "sandbox.is_healthy": async (s, _, signal) => ({ healthy: await s.isHealthy({ signal }) }),
  "sandbox.renew": async (s, w, signal) => ({ expires_at: (await s.renew(w.lifetime_s, { signal })).toISOString() }),
  "sandbox.patch_metadata": (s, w, signal) => s.patchMetadata(w.patch, { signal }),
  "sandbox.wait_for_state": (s, w, signal) => s.waitForState(w.state, { timeoutSeconds: seconds(w.timeout_ms), signal }),
  "sandbox.endpoint": (s, w, signal) => s.endpoint(w.port, { signal }),
  "sandbox.url": (s, w, signal) => s.url(w.port, { signal }),
  "sandbox.signed_endpoint": (s, w, signal) =>
    s.endpoint(w.port, { expires: new Date(Date.now() + w.expires_in_s * 1000), signal }),
  "sandbox.link": async (s, w, signal) => ({
    link: await s.link(w.port, { until: new Date(Date.now() + w.expires_in_s * 1000), signal }),
  }),
  "sandbox.snapshot": (s, w, signal) => s.snapshot({ name: given(w.name), signal }),
  "sandbox.watch_metrics": async (s) => {
    const samples = await s.watchMetrics();
    return heldStream({ next: () => samples.next(), return: () => samples.return(), shape: metrics });
  },
  "sandbox.tunnel": async (s, w, signal) => held(await s.tunnel(w.port, { signal }), null, (t) => t.close()),
  "sandbox.isolated_capabilities": (s, _, signal) => s.isolatedCapabilities({ signal }),

  "stream.next": (s) => next(s, s.shape),
  "stream.close": async (s) => void (await s.return()),
  "tunnel.write": async (t, w) => {
    t.writer ??= t.writable.getWriter();
    await t.writer.write(new TextEncoder().encode(w.text));
  },
  "tunnel.read": (t, w) => readTunnel(t, w.bytes),
  "tunnel.close": (t) => t.close(),

  "commands.run": async (s, w, signal) => output(await s.commands.run(commandOf(w), commandOptions(w, signal))),
  // The stream outlives the call that opens it, and its signal; reading it is cancelled by closing it.
  "commands.start": async (s, w) => heldExecution(await s.commands.stream(commandOf(w), commandOptions(w))),
  "commands.background": async (s, w, signal) => ({ id: await s.commands.background(commandOf(w), commandOptions(w, signal)) }),
  "commands.follow": async (s, w) => heldExecution(await s.commands.follow(w.id, w.after ?? 0)),
  "commands.status": async (s, w, signal) => commandStatus(await s.commands.status(w.id, { signal })),
  "commands.list": async (s, _, signal) => (await s.commands.list({ signal })).map(commandStatus),
  "commands.logs": (s, w, signal) => s.commands.logs(w.id, given(w.cursor), { signal }),
  "commands.interrupt": (s, w, signal) => s.commands.interrupt(w.id, { signal }),
  "commands.write_stdin": async (s, w, signal) => ({ written: await s.commands.writeStdin(w.id, w.text ?? "", { close: given(w.close), signal }) }),
  "commands.set_env": (s, w, signal) => s.commands.setEnv(w.variables, { signal }),
  "execution.next": (e) => next(e, event),
  "execution.output": async (e) => output(await e.output()),
  "execution.close": async (e) => void (await e.return()),

  "sessions.create": async (s, w, signal) => {
    const session = await s.sessions.create({ cwd: given(w.cwd), signal });
    return held(session, { id: session.id });
  },
  "session.run": async (s, w, signal) => output(await s.run(w.command, sessionOptions(w, signal))),
  "session.start": async (s, w) => heldExecution(await s.stream(w.command, sessionOptions(w))),
  "session.interrupt": (s, _, signal) => s.interrupt({ signal }),
  "session.delete": (s, _, signal) => s.delete({ signal }),

  "terminals.create": async (s, w, signal) => {
    const terminal = await s.terminals.create({ cwd: given(w.cwd), command: given(w.command), size: size(w), signal });
    return held(terminal, { id: terminal.id });
  },
  "terminal.status": (t, _, signal) => t.status({ signal }),
  "terminal.delete": (t, _, signal) => t.delete({ signal }),
  "terminal.connect": async (t, w, signal) =>
    held(
      await t.connect({ pipes: given(w.pipes), since: given(w.since), takeOver: given(w.take_over), size: size(w), signal }),
      null,
      (c) => c.close(),
    ),
  "connection.next": (c) => next(c, terminalEvent),
  "connection.write": (c, w) => c.write(w.text),
  "connection.resize": (c, w) => c.resize(w.columns, w.rows),
  "connection.signal": (c, w) => c.signal(w.signal),
  "connection.ping": (c) => c.ping(),
  "connection.close": (c) => c.close(),

  "code.run": async (s, w, signal) => output(await s.code.run(w.code, codeOptions(w, signal))),
  "code.start": async (s, w) => heldExecution(await s.code.stream(w.code, codeOptions(w))),
  "code.create_context": (s, w, signal) => s.code.createContext(w.language, { cwd: given(w.cwd), signal }),
  "code.get_context": (s, w, signal) => s.code.getContext(w.id, { signal }),
  "code.delete_context": (s, w, signal) => s.code.deleteContext(w.id, { signal }),
  "code.interrupt": (s, w, signal) => s.code.interrupt(w.id, { signal }),
  "code.list_contexts": (s, w, signal) => s.code.listContexts(given(w.language), { signal }),
  "code.delete_contexts": (s, w, signal) => s.code.deleteContexts(w.language, { signal }),

  "files.read": async (s, w, signal) => base64(await filesOf(s, w).read(w.path, { signal })),
  "files.read_text": async (s, w, signal) => ({ text: await filesOf(s, w).readText(w.path, { signal }) }),
  "files.read_range": async (s, w, signal) => base64(await filesOf(s, w).readRange(w.path, w.start, w.end, { signal })),
  "files.read_lines": async (s, w, signal) => ({ text: await filesOf(s, w).readLines(w.path, w.first, w.count, { signal }) }),
  "files.download": async (s, w, signal) => counted(await filesOf(s, w).download(w.path, { signal })),
  "files.write": (s, w, signal) => filesOf(s, w).write(w.path, contentsOf(w), { ...permission(w), signal }),
  "files.write_all": (s, w, signal) =>
    filesOf(s, w).writeAll(w.files.map((file) => ({ path: file.path, contents: contentsOf(file), ...permission(file) })), { signal }),
  "files.upload": async (s, w, signal) => {
    await filesOf(s, w).write(w.path, madeUp(w.bytes), { signal });
    return counted(madeUp(w.bytes));
  },
  "files.info": async (s, w, signal) => {
    const found = await filesOf(s, w).info(w.paths, { signal });
    return Object.fromEntries(Object.entries(found).map(([path, info]) => [path, fileInfo(info)]));
  },
  "files.exists": async (s, w, signal) => ({ exists: await filesOf(s, w).exists(w.path, { signal }) }),
  "files.list": async (s, w, signal) => (await filesOf(s, w).list(w.path, { depth: given(w.depth), signal })).map(fileInfo),
  "files.search": async (s, w, signal) => (await filesOf(s, w).search(w.path, w.pattern, { signal })).map(fileInfo),
  "files.rename": (s, w, signal) => filesOf(s, w).rename(w.from, w.to, { signal }),
  "files.delete": (s, w, signal) => filesOf(s, w).delete(w.paths, { signal }),
  "files.create_directories": (s, w, signal) => filesOf(s, w).createDirectories(w.paths, { signal }),
  "files.delete_directories": (s, w, signal) => filesOf(s, w).deleteDirectories(w.paths, { signal }),
  "files.set_permissions": (s, w, signal) => filesOf(s, w).setPermissions({ [w.path]: permission(w) }, { signal }),
  "files.replace": async (s, w, signal) => ({ count: await filesOf(s, w).replace(w.path, w.old, w.new, { signal }) }),
  "files.download_archive": async (s, w, signal) => entries(await filesOf(s, w).downloadArchive(w.path, { signal }), true),
  "files.upload_archive": (s, w, signal) => filesOf(s, w).uploadArchive(w.path, packed(w.files), { signal }),

  "egress.policy": (s, _, signal) => s.egress.policy({ signal }),
  "egress.patch": (s, w, signal) => s.egress.patch(w.rules, { signal }),
  "egress.delete": (s, w, signal) => s.egress.delete(w.targets, { signal }),
  "egress.replace": (s, w, signal) => s.egress.set(w.policy, { signal }),
  "vault.create": (s, w, signal) => s.credentialVault.create(w.request, { signal }),
  "vault.get": (s, _, signal) => s.credentialVault.get({ signal }),
  "vault.patch": (s, w, signal) => s.credentialVault.patch(w.request, { signal }),
  "vault.delete": (s, _, signal) => s.credentialVault.delete({ signal }),
  "vault.credentials": (s, _, signal) => s.credentialVault.credentials({ signal }),
  "vault.credential": (s, w, signal) => s.credentialVault.credential(w.name, { signal }),
  "vault.bindings": (s, _, signal) => s.credentialVault.bindings({ signal }),
  "vault.binding": (s, w, signal) => s.credentialVault.binding(w.name, { signal }),

  "pool.start": (c, w) => {
    const sandbox = { metadata: given(w.metadata), resources: given(w.resources) };
    const options = { maxIdle: w.max_idle, policy: given(w.policy), idleTimeoutSeconds: given(w.idle_timeout_s), sandbox };
    return held(new Pool(c, w.image, options), null, (p) => p.shutdown());
  },
  "pool.acquire": async (p, w, signal) => heldSandbox(await p.acquire(w.lifetime_s, { signal })),
  "pool.status": ({ status }) => ({ idle: status.idle, warming: status.warming, max_idle: status.maxIdle, is_degraded: status.isDegraded }),
  "pool.resize": (p, w) => p.resize(w.max_idle),
  "pool.wait_until_warm": (p, w, signal) => p.waitUntilWarm(seconds(w.timeout_ms), { signal }),
  "pool.shutdown": (p) => p.shutdown(),
};
