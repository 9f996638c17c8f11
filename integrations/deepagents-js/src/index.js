// A sandbox of an OSB server as the backend of a deep agent. deepagents makes its tools for files out of commands and of
// uploads and downloads.

import { BaseSandbox } from "deepagents";
import { OpenSandboxError } from "opensandbox";

/** What a command may take that nothing was said about. */
const TIMEOUT_SECONDS = 30 * 60;
/** What of a command's output is kept; the rest is read and dropped, and the answer says so. */
const OUTPUT_LENGTH_MAX = 10 * 1024 * 1024;
/** The status by which timeout(1) tells that time was over. */
const TIMED_OUT = 124;
/** What a shell says of a command that it cannot start, and adds to the number of a signal. */
const NOT_STARTED = 127;
const SIGNALLED = 128;
const SIGKILL = 9;
/** What the daemon says of a command whose time was over. */
const OUT_OF_TIME = "the command ran out of its timeout";

export class OsbSandbox extends BaseSandbox {
  #timeoutSeconds;

  constructor(sandbox, { timeoutSeconds = TIMEOUT_SECONDS } = {}) {
    super();
    this.sandbox = sandbox;
    this.id = sandbox.id;
    this.#timeoutSeconds = timeoutSeconds;
  }

  async execute(command) {
    let output = "";
    let length = 0;
    let failed;
    for await (const event of await this.sandbox.commands.stream(command, { timeoutSeconds: this.#timeoutSeconds })) {
      if (event.type === "stdout" || event.type === "stderr") {
        if (length < OUTPUT_LENGTH_MAX) output += event.text.slice(0, OUTPUT_LENGTH_MAX - length);
        length += event.text.length;
      } else if (event.type === "error") {
        failed = event.error;
      }
    }
    const truncated = length > OUTPUT_LENGTH_MAX;
    if (failed === undefined) return { output, exitCode: 0, truncated };
    if (failed.traceback.includes(OUT_OF_TIME)) {
      const told = `${output}\nthe command did not end within ${this.#timeoutSeconds} s`;
      return { output: told, exitCode: TIMED_OUT, truncated };
    }
    const code = Number.parseInt(failed.value, 10);
    if (Number.isNaN(code)) return { output: output + failed.value, exitCode: NOT_STARTED, truncated };
    return { output, exitCode: code < 0 ? SIGNALLED + SIGKILL : code, truncated };
  }

  async uploadFiles(files) {
    const told = [];
    for (const [path, content] of files) {
      const error = await errorOf(path, () => this.sandbox.files.write(path, content));
      told.push({ path, error });
    }
    return told;
  }

  async downloadFiles(paths) {
    const told = [];
    for (const path of paths) {
      let content = null;
      const error = await errorOf(path, async () => {
        content = await this.sandbox.files.read(path);
      });
      told.push({ path, content, error });
    }
    return told;
  }
}

/** Does it; null where that went well, else one of the words that deepagents has. Another error is thrown. */
async function errorOf(path, act) {
  if (!path.startsWith("/")) return "invalid_path";
  try {
    await act();
    return null;
  } catch (error) {
    if (!(error instanceof OpenSandboxError)) throw error;
    if (/not a directory/i.test(error.message)) return "invalid_path";
    if (/is a directory/i.test(error.message)) return "is_directory";
    if (/permission denied|operation not permitted/i.test(error.message)) return "permission_denied";
    if (error.isNotFound && error.code === "FILE_NOT_FOUND") return "file_not_found";
    throw error;
  }
}
