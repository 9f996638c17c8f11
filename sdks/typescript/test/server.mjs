// A real server on the embedded runtime, in a directory and on a port of its own. Needs root, and osb
// and execd: OSB_BIN, or what `cargo build` left, the newest of it.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client, ConnectionConfig } from "../dist/index.js";

const REPO = fileURLToPath(new URL("../../..", import.meta.url));
/** What it takes at most to start, also on a busy machine. */
const START_MILLISECONDS = 60_000;
export const API_KEY = "sdk-test-key";

function program() {
  if (process.env.OSB_BIN) return process.env.OSB_BIN;
  const target = process.env.CARGO_TARGET_DIR ?? join(REPO, "target");
  const built = ["release", "debug"].map((profile) => join(target, profile, "osb")).filter((path) => existsSync(path));
  if (built.length === 0) throw new Error("no osb is built; run: cargo build -p osb -p execd");
  return built.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];
}

/** The helper of the graphical images, built beside osb. */
export const desktopHelper = () => join(dirname(program()), "desktop");

export class Server {
  static async start(settings = []) {
    const server = new Server();
    server.place = mkdtempSync(join(tmpdir(), "osb-typescript-"));
    const osb = program();
    const all = [
      "log.format=json",
      `server.api_key=${API_KEY}`,
      `embedded.data_dir=${server.place}`,
      "embedded.ready_sandboxes=4",
      `runtime.execd_path=${join(dirname(osb), "execd")}`,
      ...settings,
    ];
    const { SANDBOX_CONFIG_PATH: _, ...environment } = process.env;
    server.child = spawn(osb, ["server", "--port", "0", ...all.flatMap((setting) => ["--set", setting])], {
      env: { ...environment, HOME: server.place },
      stdio: ["ignore", "ignore", "pipe"],
    });
    server.address = await server.#ready();
    return server;
  }

  #ready() {
    return new Promise((resolve, reject) => {
      const log = [];
      const late = setTimeout(() => reject(new Error(`the server is not ready:\n${log.join("\n")}`)), START_MILLISECONDS);
      this.child.on("exit", (code) => reject(new Error(`the server ended with ${code}:\n${log.join("\n")}`)));
      // Read on, so that the server never waits for its log to be taken.
      createInterface({ input: this.child.stderr }).on("line", (line) => {
        if (log.length < 200) log.push(line);
        const { message, address } = line.startsWith("{") ? JSON.parse(line) : {};
        if (message !== "ready") return;
        clearTimeout(late);
        resolve(address);
      });
    });
  }

  connection(options = {}) {
    return new ConnectionConfig({ domain: this.address, apiKey: API_KEY, ...options });
  }

  client(options = {}) {
    return new Client(this.connection(options));
  }

  /** Sandboxes outlive their server, also those that a test left alive. */
  async stop() {
    const client = this.client();
    for await (const { id } of client.list({ pageSize: 200 })) await client.sandbox(id).kill();
    const ended = new Promise((resolve) => this.child.on("exit", resolve));
    this.child.kill("SIGTERM");
    await ended;
    rmSync(this.place, { recursive: true, force: true });
  }
}
