// The published JavaScript SDK 0.1.11 against a running server, whose address and key come in
// OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY as users set them.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { ConnectionConfig, Sandbox, SandboxApiException, SandboxManager } from '@alibaba-group/opensandbox';

const image = process.env.OSB_TEST_IMAGE ?? 'host';
const connectionConfig = new ConnectionConfig({});
const resource = { cpu: '1', memory: '512Mi' };
// Older clients get one event a line without its end, newer ones the text as it was.
const text = (messages) => messages.map(({ text }) => (text.endsWith('\n') ? text : `${text}\n`)).join('');
let sandbox;

before(async () => {
  sandbox = await Sandbox.create({ connectionConfig, image, resource, timeoutSeconds: 600, metadata: { by: 'js' } });
});
after(async () => {
  await sandbox.kill();
  await sandbox.close();
});

test('info, health, metrics', async () => {
  const info = await sandbox.getInfo();
  assert.equal(info.id, sandbox.id);
  assert.equal(info.status.state, 'Running');
  assert.deepEqual(info.metadata, { by: 'js' });
  assert.equal(await sandbox.isHealthy(), true);
  const metrics = await sandbox.getMetrics();
  assert.ok(metrics.memoryTotalMiB > 0 && metrics.memoryUsedMiB <= metrics.memoryTotalMiB);
});

test('commands: output, errors, options, background', async () => {
  const good = await sandbox.commands.run('echo out; echo err >&2');
  assert.equal(text(good.logs.stdout).trim(), 'out');
  assert.equal(text(good.logs.stderr).trim(), 'err');
  const bad = await sandbox.commands.run('exit 7');
  assert.equal(bad.error.value, '7');
  const where = await sandbox.commands.run('pwd', { workingDirectory: '/tmp' });
  assert.equal(text(where.logs.stdout).trim(), '/tmp');
  const background = await sandbox.commands.run('echo begun; touch /tmp/begun; exec sleep 600', { background: true });
  // An interrupt at once could come before the first word.
  await sandbox.commands.run('until [ -e /tmp/begun ]; do :; done');
  const status = await sandbox.commands.getCommandStatus(background.id);
  assert.equal(status.running, true);
  await sandbox.commands.interrupt(background.id);
  const logs = await sandbox.commands.getBackgroundCommandLogs(background.id);
  assert.equal(logs.content, 'begun\n');
  let streamed = '';
  for await (const event of sandbox.commands.runStream('echo a; echo b')) {
    if (event.type === 'stdout') streamed += event.text.endsWith('\n') ? event.text : `${event.text}\n`;
  }
  assert.equal(streamed, 'a\nb\n');
});

test('sessions remember', async () => {
  const session = await sandbox.commands.createSession({ workingDirectory: '/tmp' });
  await sandbox.commands.runInSession(session, 'X=5; cd /');
  const out = await sandbox.commands.runInSession(session, 'echo $X; pwd');
  assert.deepEqual(text(out.logs.stdout).split(/\s+/).filter(Boolean), ['5', '/']);
  await sandbox.commands.deleteSession(session);
});

test('files there and back', async () => {
  const { files } = sandbox;
  await files.createDirectories([{ path: '/tmp/js', mode: 755 }]);
  await files.writeFiles([{ path: '/tmp/js/a.txt', data: 'one two', mode: 640 }]);
  assert.equal(await files.readFile('/tmp/js/a.txt'), 'one two');
  const binary = new Uint8Array(4096).map((_, index) => index % 256);
  await files.writeFiles([{ path: '/tmp/js/b.bin', data: binary }]);
  assert.deepEqual(new Uint8Array(await files.readBytes('/tmp/js/b.bin')), binary);
  const collected = [];
  for await (const chunk of files.readBytesStream('/tmp/js/b.bin')) collected.push(...chunk);
  assert.deepEqual(new Uint8Array(collected), binary);
  const info = await files.getFileInfo(['/tmp/js/a.txt']);
  assert.equal(info['/tmp/js/a.txt'].mode, 640);
  await files.setPermissions([{ path: '/tmp/js/a.txt', mode: 600 }]);
  await files.replaceContents([{ path: '/tmp/js/a.txt', oldContent: 'one', newContent: '1' }]);
  await files.moveFiles([{ src: '/tmp/js/a.txt', dest: '/tmp/js/c.txt' }]);
  const found = await files.search({ path: '/tmp/js', pattern: '*.txt' });
  assert.deepEqual(found.map((entry) => entry.path), ['/tmp/js/c.txt']);
  await files.deleteFiles(['/tmp/js/c.txt']);
  await files.deleteDirectories(['/tmp/js']);
});

test('endpoint, renew, metadata, pause and resume', async () => {
  assert.ok(!(await sandbox.getEndpoint(8080)).endpoint.includes('://'));
  assert.ok((await sandbox.getEndpointUrl(8080)).startsWith('http'));
  const renewed = await sandbox.renew(1200);
  assert.ok(new Date(renewed.expiresAt) - Date.now() > 1_100_000);
  const patched = await sandbox.patchMetadata({ by: null, now: 'patched' });
  assert.deepEqual(patched.metadata, { now: 'patched' });
  await sandbox.pause();
  assert.equal((await sandbox.getInfo()).status.state, 'Paused');
  const resumed = await sandbox.resume();
  assert.equal((await resumed.getInfo()).status.state, 'Running');
  const connected = await Sandbox.connect({ connectionConfig, sandboxId: sandbox.id });
  assert.equal(await connected.isHealthy(), true);
});

test('the manager: list, snapshot, kill', async () => {
  const manager = SandboxManager.create({ connectionConfig });
  const other = await Sandbox.create({ connectionConfig, image, resource, metadata: { by: 'js-manager' } });
  const listed = await manager.listSandboxInfos({ metadata: { by: 'js-manager' } });
  assert.deepEqual(listed.items.map((info) => info.id), [other.id]);
  assert.equal((await manager.getSandboxInfo(other.id)).id, other.id);
  await manager.patchSandboxMetadata(other.id, { more: 'x' });
  await manager.renewSandbox(other.id, 900);
  await manager.pauseSandbox(other.id);
  await manager.resumeSandbox(other.id);
  let snapshot = await manager.createSnapshot(other.id, { name: 'js' });
  while (snapshot.status.state === 'Creating') snapshot = await manager.getSnapshot(snapshot.id);
  assert.equal(snapshot.status.state, 'Ready');
  const snapshots = await manager.listSnapshots({ sandboxId: other.id });
  assert.deepEqual(snapshots.items.map((found) => found.id), [snapshot.id]);
  const from = await Sandbox.create({ connectionConfig, snapshotId: snapshot.id, resource });
  assert.equal(await from.isHealthy(), true);
  await from.kill();
  await manager.deleteSnapshot(snapshot.id);
  await manager.killSandbox(other.id);
  await assert.rejects(manager.getSandboxInfo(other.id), (error) => error instanceof SandboxApiException && error.statusCode === 404);
  await manager.close();
});

// What the client may take to show a reason that the server knows.
const shownWithin = 3000;
const refused = async (attempt) => {
  const begun = Date.now();
  let said;
  await assert.rejects(attempt(), (error) => {
    said = error.message;
    return true;
  });
  assert.ok(Date.now() - begun < shownWithin, `shown after ${Date.now() - begun} ms: ${said}`);
  return said;
};

test('the reason of a sandbox that cannot be had or used is shown soon', async () => {
  if (image === 'host') {
    const registry = http.createServer((_, answer) => answer.writeHead(404).end());
    await new Promise((listening) => registry.listen(0, '127.0.0.1', listening));
    const nowhere = `127.0.0.1:${registry.address().port}/nobody/has-this:1`;
    const missing = () => Sandbox.create({ connectionConfig, image: nowhere, resource });
    assert.match(await refused(missing), /was not found/);
    registry.close();
  }
  const paused = await Sandbox.create({ connectionConfig, image, resource });
  await paused.pause();
  assert.match(await refused(() => Sandbox.connect({ connectionConfig, sandboxId: paused.id })), /paused; resume/);
  await paused.kill();
  await paused.close();
});
