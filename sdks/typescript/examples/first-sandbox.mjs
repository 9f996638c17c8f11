// The first page: a sandbox, a command, code that remembers, a file. The server is the one of
// OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY. IMAGE is what the sandbox starts from.

import { OpenSandboxError, Sandbox } from "opensandbox";

try {
  const sandbox = await Sandbox.create(process.env.IMAGE ?? "python:3.12");
  try {
    const output = await sandbox.commands.run("echo 'Hello Sandbox!'");
    console.log(output.stdout.trim(), "exit code", output.exitCode);

    await sandbox.code.run("x = 20");
    console.log("x + 1 is", (await sandbox.code.run("x + 1")).text);

    await sandbox.files.write("/tmp/data.csv", "a,b\n1,2\n");
    for await (const event of await sandbox.commands.stream("wc -l /tmp/data.csv")) {
      if (event.type === "stdout") console.log(event.text.trim());
    }
  } finally {
    await sandbox.kill();
  }
} catch (error) {
  if (!(error instanceof OpenSandboxError)) throw error;
  console.error(`[${error.code}] ${error.message}; ${error.remedy} (request ${error.requestId ?? "not sent"})`);
  process.exitCode = 1;
}
