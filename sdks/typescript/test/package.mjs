// The package as users get it: packed, installed in a fresh directory, its types checked strictly by a
// program of theirs, and its examples run, on the runtimes named; `chromium` opens the browser page.
//
//     sdks/typescript/test/package.mjs RUNTIME=COMMAND... [chromium=PROGRAM]

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { API_KEY, Server } from "./server.mjs";

const run = promisify(execFile);
const SDK = fileURLToPath(new URL("..", import.meta.url));
/** No step takes this long; it only keeps a broken one from hanging. */
const STEP_MILLISECONDS = 60_000;

const place = mkdtempSync(join(tmpdir(), "osb-package-"));
const server = await Server.start();
const environment = { ...process.env, HOME: place, OPEN_SANDBOX_DOMAIN: server.address, OPEN_SANDBOX_API_KEY: API_KEY, IMAGE: "host" };

/** Packs the package and installs the tarball, without the network and without scripts. */
async function install() {
  await run("npm", ["pack", "--ignore-scripts", "--silent", "--pack-destination", place], { cwd: SDK, timeout: STEP_MILLISECONDS });
  const [tarball] = readdirSync(place).filter((name) => name.endsWith(".tgz"));
  writeFileSync(join(place, "package.json"), '{"private": true, "type": "module"}');
  const options = ["install", "--offline", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund", "--silent"];
  await run("npm", [...options, `./${tarball}`], { cwd: place, timeout: STEP_MILLISECONDS });
  const installed = join(place, "node_modules/opensandbox");
  for (const file of ["README.md", "CHANGELOG.md", "LICENSE", "dist/index.js", "dist/index.d.ts", "docs/reference.md"]) {
    readFileSync(join(installed, file));
  }
  assert.deepEqual(readdirSync(join(place, "node_modules")).filter((name) => !name.startsWith(".")), ["opensandbox"]);
  return installed;
}

/** Compiles the route with everything strict, as a user's own program. */
async function compileRoute(installed) {
  cpSync(join(installed, "examples/nextjs/route.ts"), join(place, "route.ts"));
  cpSync(join(SDK, "node_modules/@types"), join(place, "types/@types"), { recursive: true });
  cpSync(join(SDK, "node_modules/undici-types"), join(place, "types/undici-types"), { recursive: true });
  const compilerOptions = {
    target: "ES2022", module: "NodeNext", lib: ["ESNext", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
    strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noPropertyAccessFromIndexSignature: true,
    typeRoots: ["./types/@types"], types: ["node"], paths: { "undici-types": ["./types/undici-types"] }, skipLibCheck: false,
  };
  writeFileSync(join(place, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["route.ts"] }));
  const tsc = join(SDK, "node_modules/typescript/bin/tsc");
  await run(process.execPath, [tsc, "-p", place], { timeout: STEP_MILLISECONDS }).catch((error) => {
    throw new Error(`the types do not hold:\n${error.stdout}`);
  });
}

async function firstSandbox(command) {
  const [program, ...rest] = command.split(" ");
  const example = join(place, "first-sandbox.mjs");
  const { stdout } = await run(program, [...rest, example], { cwd: place, env: environment, timeout: STEP_MILLISECONDS });
  assert.equal(stdout, "Hello Sandbox! exit code 0\nx + 1 is 21\n2 /tmp/data.csv\n");
}

/** The README's first page, whose table sdks/conformance/first_page.py holds to its form. */
async function firstPage() {
  const [, text] = /<\/td><td>\n\n```ts\n(.*?)```/s.exec(readFileSync(join(SDK, "README.md"), "utf8"));
  const page = text.replace('"api.opensandbox.io"', `"${server.address}"`).replace('"your-api-key"', `"${API_KEY}"`).replace('"ubuntu"', '"host"');
  writeFileSync(join(place, "first-page.mjs"), page);
  const { stdout } = await run(process.execPath, [join(place, "first-page.mjs")], { cwd: place, timeout: STEP_MILLISECONDS });
  assert.equal(stdout.trim(), "Hello Sandbox!");
}

/** The route, called as a framework calls it. */
async function route() {
  Object.assign(process.env, { OPEN_SANDBOX_DOMAIN: server.address, OPEN_SANDBOX_API_KEY: API_KEY, IMAGE: "host" });
  const { POST } = await import(pathToFileURL(join(place, "route.js")).href);
  const post = (body) => POST(new Request("http://localhost/api/run", { method: "POST", body: JSON.stringify(body) }));
  assert.equal(await (await post({ code: "print('printed'); 6 * 7" })).text(), "printed\n42\n");
  assert.equal((await post({})).status, 400);
  const left = await Array.fromAsync(server.client().list({ metadata: { made_by: "nextjs-example" } }));
  assert.deepEqual(left, [], "the sandbox ended with the stream");
}

/** One page of a real browser, over its DevTools protocol. */
async function browse(program, url, script) {
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-zygote"];
  const browser = spawn(program, [...flags, "--remote-debugging-port=0", `--user-data-dir=${join(place, "profile")}`, "about:blank"], {
    env: { ...process.env, HOME: place, LD_LIBRARY_PATH: join(dirname(program), "lib") },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const said = [];
  try {
    const address = await new Promise((resolve, reject) => {
      browser.on("exit", (code) => reject(new Error(`the browser ended with ${code}:\n${said.join("\n")}`)));
      createInterface({ input: browser.stderr }).on("line", (line) => {
        said.push(line);
        const found = /^DevTools listening on (ws:\S+)/.exec(line);
        if (found) resolve(found[1]);
      });
    });
    const socket = new WebSocket(address);
    await once(socket, "open");
    const waiting = new Map();
    const loaded = new Promise((resolve) => {
      socket.addEventListener("message", ({ data }) => {
        const message = JSON.parse(data);
        if (message.method === "Page.loadEventFired") resolve();
        waiting.get(message.id)?.(message);
      });
    });
    let number = 0;
    let sessionId;
    const call = async (method, params = {}) => {
      const answer = new Promise((resolve) => waiting.set(++number, resolve));
      socket.send(JSON.stringify({ id: number, sessionId, method, params }));
      const { result, error } = await answer;
      if (error) throw new Error(`${method}: ${error.message}`);
      return result;
    };
    const { targetId } = await call("Target.createTarget", { url: "about:blank" });
    ({ sessionId } = await call("Target.attachToTarget", { targetId, flatten: true }));
    await call("Page.enable");
    await call("Page.navigate", { url });
    await loaded;
    const result = await call("Runtime.evaluate", { expression: script, awaitPromise: true, returnByValue: true });
    socket.close();
    if (result.exceptionDetails) throw new Error(JSON.stringify(result.exceptionDetails));
    return result.result.value;
  } finally {
    browser.kill("SIGKILL");
    await once(browser, "exit");
  }
}

/** Fills the form, runs it, and answers what the page shows when it is done. */
function pageScript(command) {
  return `(async () => {
    for (const [name, value] of Object.entries(${JSON.stringify({ image: "host", command })})) document.querySelector("[name=" + name + "]").value = value;
    const output = document.getElementById("output");
    const done = new Promise((resolve) => new MutationObserver(() => output.dataset.done && resolve()).observe(output, { attributes: true }));
    document.querySelector("button").click();
    await done;
    return output.textContent;
  })()`;
}

async function page(program) {
  const pages = spawn(process.execPath, [join(place, "browser/server.mjs")], { env: environment, stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [url] = await once(createInterface({ input: pages.stdout }), "line");
    assert.equal(await browse(program, url, pageScript("echo from the page; seq 3")), "from the page\n1\n2\n3\n");
  } finally {
    pages.kill();
  }
}

async function step(name, act) {
  const begun = performance.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${name}: not done after ${STEP_MILLISECONDS} ms`)), STEP_MILLISECONDS);
  });
  await Promise.race([act(), late]).finally(() => clearTimeout(timer));
  console.log(`ok ${name} (${Math.round(performance.now() - begun)} ms)`);
}

try {
  let installed;
  await step("packed and installed in a fresh directory", async () => {
    installed = await install();
  });
  await step("its types hold in a strict program", () => compileRoute(installed));
  cpSync(join(installed, "examples/first-sandbox.mjs"), join(place, "first-sandbox.mjs"));
  cpSync(join(installed, "examples/browser"), join(place, "browser"), { recursive: true });
  await step("the README's first page", firstPage);
  await step("the route of a web framework", route);
  for (const argument of process.argv.slice(2)) {
    const at = argument.indexOf("=");
    const [name, command] = [argument.slice(0, at), argument.slice(at + 1)];
    if (name === "chromium") await step("the page in a browser", () => page(command));
    else await step(`the first example on ${name}`, () => firstSandbox(command));
  }
} finally {
  await server.stop();
  rmSync(place, { recursive: true, force: true });
}
