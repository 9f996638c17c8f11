// A route handler as Next.js has them (app/api/run/route.ts): runs the code of a request in a sandbox
// of its own and streams what it prints. The key stays on the server; whoever hangs up ends the sandbox.

import { OpenSandboxError, Sandbox } from "opensandbox";

/** How long one request may keep a sandbox. */
const LIFETIME_SECONDS = 120;

export async function POST(request: Request): Promise<Response> {
  const { code } = (await request.json()) as { code?: string };
  if (typeof code !== "string") return Response.json({ error: "send {\"code\": \"…\"}" }, { status: 400 });
  try {
    const sandbox = await Sandbox.create(process.env["IMAGE"] ?? "python:3.12", {
      lifetimeSeconds: LIFETIME_SECONDS,
      metadata: { made_by: "nextjs-example" },
      signal: request.signal,
    });
    const texts = printed(sandbox, code);
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { value, done } = await texts.next();
        if (done) controller.close();
        else controller.enqueue(new TextEncoder().encode(value));
      },
      // Who hangs up ends the sandbox, too.
      cancel: async () => void (await texts.return(undefined)),
    });
    return new Response(body, { headers: { "Content-Type": "text/plain; charset=utf-8" } });
  } catch (error) {
    if (!(error instanceof OpenSandboxError)) throw error;
    return Response.json({ error: error.message, requestId: error.requestId }, { status: 502 });
  }
}

/** What the code prints; the sandbox ends with the stream, however that ends. */
async function* printed(sandbox: Sandbox, code: string): AsyncGenerator<string> {
  await using _ending = sandbox;
  for await (const event of await sandbox.code.stream(code)) {
    if (event.type === "stdout" || event.type === "stderr") yield event.text;
    else if (event.type === "result" && event.result.text !== undefined) yield `${event.result.text}\n`;
    else if (event.type === "error") yield `${event.error.name}: ${event.error.value}\n`;
  }
}
