// OSB sandboxes as a provider of ComputeSDK. Everything is the TypeScript SDK's; this only gives it ComputeSDK's names.

import { defineProvider } from "@computesdk/provider";
import { ApiError, Client } from "opensandbox";

const NAME = "opensandbox";
/** As in the SDK. */
const LIFETIME_SECONDS = 600;
/** How long an address of `getUrl` is good. */
const URL_SECONDS = 3600;
/** What a shell says of a command that it cannot start. */
const NOT_STARTED = 127;

/** Where commands of a sandbox run that was created with a `directory`. */
const directories = new WeakMap();
/** One client for each configuration, so that its connections are kept. */
const clients = new WeakMap();

function clientOf(config) {
  if (!clients.has(config)) clients.set(config, new Client(config.connection));
  return clients.get(config);
}

async function unlessGone(act) {
  try {
    return await act();
  } catch (error) {
    if (error instanceof ApiError && error.isNotFound) return null;
    throw error;
  }
}

function sourceOf(config, { snapshotId, templateId, image }) {
  if (snapshotId) return { snapshotId };
  if (templateId) return { templateId };
  return image ?? config.image;
}

async function create(config, options = {}) {
  const { timeout = config.timeout, envs, name, metadata, cpu, memoryMiB, signal, directory } = options;
  const labels = metadata && Object.fromEntries(Object.entries(metadata).map(([key, value]) => [key, String(value)]));
  const resources = { ...(cpu ? { cpu: String(cpu) } : {}), ...(memoryMiB ? { memory: `${memoryMiB}Mi` } : {}) };
  const given = { name, env: envs, metadata: labels, resources, signal, ...config.opensandbox, ...options.opensandbox };
  const lifetimeSeconds = timeout === undefined ? LIFETIME_SECONDS : Math.ceil(timeout / 1000);
  const sandbox = await clientOf(config).create(sourceOf(config, options), { lifetimeSeconds, ...given });
  if (directory) {
    await sandbox.files.createDirectories([directory]);
    directories.set(sandbox, directory);
  }
  // ComputeSDK ends what it made by `destroy`.
  return { sandbox: sandbox.keep(), sandboxId: sandbox.id };
}

function commandOptions(sandbox, { cwd = directories.get(sandbox), env, timeout }) {
  return { cwd, env, timeoutSeconds: timeout === undefined ? undefined : timeout / 1000 };
}

async function runCommand(sandbox, command, options = {}) {
  const begun = performance.now();
  const told = (stdout, stderr, exitCode) => ({ stdout, stderr, exitCode, durationMs: performance.now() - begun });
  if (options.background) {
    await sandbox.commands.background(command, commandOptions(sandbox, options));
    return told("", "", 0);
  }
  const execution = await sandbox.commands.stream(command, commandOptions(sandbox, options));
  let stdout = "";
  let stderr = "";
  let failed;
  for await (const event of execution) {
    if (event.type === "stdout") {
      stdout += event.text;
      options.onStdout?.(event.text);
    } else if (event.type === "stderr") {
      stderr += event.text;
      options.onStderr?.(event.text);
    } else if (event.type === "error") {
      failed = event.error;
    }
  }
  if (failed === undefined) return told(stdout, stderr, 0);
  // The code that it ended with, or why it has none.
  const code = Number.parseInt(failed.value, 10);
  return Number.isNaN(code) ? told(stdout, stderr + failed.value, NOT_STARTED) : told(stdout, stderr, code);
}

function statusOf(state) {
  if (state === "Failed") return "error";
  return state === "Running" || state === "Pending" ? "running" : "stopped";
}

async function getInfo(sandbox) {
  const { id, status, createdAt, expiresAt, metadata } = await sandbox.info();
  const timeout = expiresAt ? Date.parse(expiresAt) - Date.parse(createdAt) : 0;
  return { id, provider: NAME, status: statusOf(status.state), createdAt: new Date(createdAt), timeout, metadata: metadata ?? {} };
}

async function getUrl(sandbox, { port, protocol }) {
  const { endpoint, headers } = await sandbox.endpoint(port, { expires: new Date(Date.now() + URL_SECONDS * 1000) });
  if (Object.keys(headers ?? {}).length > 0) {
    throw new Error(
      "this server's gateway tells sandboxes apart by a header, which an address cannot carry: " +
        "set ingress.gateway.route.mode to wildcard or uri, or use getInstance().url(port)",
    );
  }
  const address = endpoint.includes("://") ? endpoint : `${sandbox.client.config.scheme}://${endpoint}`;
  return protocol === undefined ? address : address.replace(/^\w+(?=:\/\/)/, protocol);
}

const filesystem = {
  readFile: (sandbox, path) => sandbox.files.readText(path),
  writeFile: (sandbox, path, content) => sandbox.files.write(path, content),
  mkdir: (sandbox, path) => sandbox.files.createDirectories([path]),
  readdir: async (sandbox, path) =>
    (await sandbox.files.list(path)).map((found) => ({
      name: found.path.slice(found.path.lastIndexOf("/") + 1),
      type: found.type === "directory" ? "directory" : "file",
      size: found.size,
      modified: found.modifiedAt,
    })),
  exists: (sandbox, path) => sandbox.files.exists(path),
  remove: async (sandbox, path) => {
    const found = (await sandbox.files.info([path]))[path];
    await (found?.type === "directory" ? sandbox.files.deleteDirectories([path]) : sandbox.files.delete([path]));
  },
};

const snapshotInfo = ({ id, createdAt, name }) => ({ id, provider: NAME, createdAt: new Date(createdAt), metadata: name ? { name } : {} });

const snapshot = {
  create: async (config, sandboxId, { name, metadata } = {}) => {
    if (metadata && Object.keys(metadata).length > 0) throw new TypeError("a snapshot has a name and no metadata");
    return snapshotInfo(await clientOf(config).sandbox(sandboxId).snapshot({ name }));
  },
  list: async (config, { sandboxId, limit = Number.POSITIVE_INFINITY } = {}) => {
    const found = [];
    for await (const each of clientOf(config).listSnapshots({ sandboxId })) {
      if (found.length >= limit) break;
      found.push(snapshotInfo(each));
    }
    return found;
  },
  delete: (config, id) => clientOf(config).deleteSnapshot(id),
};

const provider = defineProvider({
  name: NAME,
  methods: {
    sandbox: {
      create,
      getById: (config, id) =>
        unlessGone(async () => {
          const sandbox = clientOf(config).sandbox(id);
          await sandbox.info();
          return { sandbox, sandboxId: id };
        }),
      list: async (config) => {
        const found = [];
        for await (const { id } of clientOf(config).list()) found.push({ sandbox: clientOf(config).sandbox(id), sandboxId: id });
        return found;
      },
      destroy: async (config, id) => void (await unlessGone(() => clientOf(config).kill(id))),
      runCommand,
      streamCommand: runCommand,
      getInfo,
      getUrl,
      getInstance: (sandbox) => sandbox,
      filesystem,
    },
    snapshot,
  },
});

export const opensandbox = (config = {}) => provider(config);
