// Serves the page and passes /v1 on to the OpenSandbox server, with the key, which the page never sees:
// for the browser all of it is one origin. Prints its address. Listens on loopback only, because whoever
// opens the page may do what the key may; put a login of yours before it.
//
//     OPEN_SANDBOX_DOMAIN=… OPEN_SANDBOX_API_KEY=… node server.mjs

import { readFile } from "node:fs/promises";
import { createServer, request as connect } from "node:http";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { ConnectionConfig } from "opensandbox";

const config = ConnectionConfig.load();
const page = dirname(fileURLToPath(import.meta.url));
const sdk = dirname(fileURLToPath(import.meta.resolve("opensandbox")));
const TYPES = { html: "text/html", js: "text/javascript" };

/** Files have one name and no directories, so that no request leads out of them. */
async function file(url, response) {
  const name = basename(url.split("?")[0]) || "index.html";
  const path = join(url.startsWith("/opensandbox/") ? sdk : page, name);
  try {
    const text = await readFile(path);
    response.writeHead(200, { "Content-Type": TYPES[name.split(".").at(-1)] ?? "text/plain" }).end(text);
  } catch {
    response.writeHead(404).end();
  }
}

/** The request as it is, its Host included, so that endpoints come back with this server's address. */
function pass(request, response) {
  const headers = { ...request.headers };
  if (config.apiKey !== undefined) headers["open-sandbox-api-key"] = config.apiKey;
  const upstream = connect(new URL(request.url, config.rootUrl), { method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
    // An answer that breaks off must break off here, too, or its reader would take it for whole.
    answer.on("error", () => response.destroy());
  });
  upstream.on("error", () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
  response.on("close", () => upstream.destroy());
  request.pipe(upstream);
}

const server = createServer((request, response) => {
  if (request.url.startsWith("/v1/")) pass(request, response);
  else void file(request.url, response);
});
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/`);
});
