// The SDK's own types as sdks/conformance/README.md writes them.

const failure = (error) => error && { name: error.name, value: error.value, traceback: error.traceback };
const milliseconds = (seconds) => (seconds === undefined ? undefined : Math.round(seconds * 1000));
const text = (bytes) => new TextDecoder().decode(bytes);

function result(rich) {
  return { kind: rich.kind, by_type: rich.byType, text: rich.text, count: rich.count };
}

export function output(out) {
  const { how, ...rest } = out.ending;
  return {
    id: out.id,
    stdout: out.stdout,
    stderr: out.stderr,
    exit_code: out.exitCode,
    ending: { kind: how, ...rest },
    success: out.isSuccess,
    error: failure(out.error),
    results: out.results.map(result),
    text: out.text,
    count: out.count,
    took_ms: milliseconds(out.tookSeconds),
  };
}

export function event(given) {
  switch (given.type) {
    case "result":
      return { type: "result", ...result(given.result) };
    case "error":
      return { type: "error", ...failure(given.error) };
    case "completed":
      return { type: "completed", took_ms: milliseconds(given.tookSeconds) };
    default:
      return given;
  }
}

export function terminalEvent(given) {
  if (!("bytes" in given)) return given;
  const { bytes, ...rest } = given;
  return { ...rest, text: text(bytes) };
}

export function fileInfo(info) {
  return {
    path: info.path,
    raw_path: info.rawPath,
    type: info.type,
    size: info.size,
    modified_at: info.modifiedAt.toISOString(),
    created_at: info.createdAt.toISOString(),
    owner: info.owner,
    group: info.group,
    mode: Number(info.mode.toString(8)),
  };
}
