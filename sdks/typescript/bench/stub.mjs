// A server that answers at once, in a process of its own: what a client takes at it is the client's
// own time, and a little of this one's. Prints its address. Speaks as much as the benchmark asks for.

import { createServer } from "node:http";

const LINES = 1_000_000;
const now = new Date().toISOString();
const status = { state: "Running" };
const sandbox = { id: "s1", status, createdAt: now, expiresAt: now, entrypoint: ["x"] };

const few = ["init", "stdout", "execution_complete"]
  .map((type, at) => JSON.stringify({ type, text: type === "stdout" ? "hi\n" : "c1", timestamp: 1, seq: at + 1 }))
  .join("\n\n");
function stream(lines) {
  let text = `{"type":"init","text":"c1","timestamp":1,"seq":1}\n\n`;
  for (let line = 1; line <= lines; line++) text += `{"type":"stdout","text":"${line}\\n","timestamp":1789000000000,"seq":${line + 1}}\n\n`;
  return Buffer.from(`${text}{"type":"execution_complete","execution_time":1,"timestamp":1,"seq":${lines + 2}}\n\n`);
}
const many = stream(LINES);
const tenth = stream(LINES / 10);

createServer((request, response) => {
  const json = (code, value) => response.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(value));
  const { url, method } = request;
  let body = "";
  request.on("data", (piece) => {
    body += piece;
  });
  request.on("end", () => {
    if (url.startsWith("/v1/sandboxes/s1/endpoints")) return json(200, { endpoint: request.headers.host });
    if (method === "POST" && url === "/v1/sandboxes") return json(202, sandbox);
    if (method === "DELETE") return response.writeHead(204).end();
    if (url.startsWith("/v1/sandboxes")) return json(200, sandbox);
    if (url.startsWith("/ping")) return response.end();
    if (url.startsWith("/command")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      return response.end(body.includes("many") ? many : body.includes("tenth") ? tenth : `${few}\n\n`);
    }
    return json(404, { code: "NOT_FOUND", message: url });
  });
}).listen(0, "127.0.0.1", function () {
  console.log(`127.0.0.1:${this.address().port}`);
});
