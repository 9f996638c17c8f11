// The page's own part: what it prints goes to #output, and `done` says that all of it has come.

import { OpenSandboxError, Sandbox } from "./opensandbox/index.js";

const form = document.getElementById("form");
const output = document.getElementById("output");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { image, command } = Object.fromEntries(new FormData(form));
  output.textContent = "";
  delete output.dataset.done;
  let sandbox;
  try {
    sandbox = await Sandbox.create(image, { connection: { domain: location.origin }, lifetimeSeconds: 120 });
    const execution = await sandbox.commands.stream(command);
    for await (const event of execution) {
      if (event.type === "stdout" || event.type === "stderr") output.textContent += event.text;
    }
  } catch (error) {
    if (!(error instanceof OpenSandboxError)) throw error;
    output.textContent += `${error.message}; ${error.remedy}`;
  } finally {
    await sandbox?.kill();
    output.dataset.done = "yes";
  }
});
