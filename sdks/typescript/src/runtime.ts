// What the runtimes do not share: the environment, files, and what their WebSocket takes. Everything
// here may be missing, as in a browser; nothing is imported, so that bundlers find nothing to follow.

/** The parts of `process` that Node, Bun and Deno have in common. */
interface ProcessLike {
  env?: Record<string, string | undefined>;
  versions?: { node?: string };
  getBuiltinModule?(name: string): unknown;
}

function processLike(): ProcessLike | undefined {
  return (globalThis as { process?: ProcessLike }).process;
}

/** Whether this is Node, Bun or Deno, as opposed to a browser or a worker. */
export function isNodeLike(): boolean {
  return processLike()?.versions?.node !== undefined;
}

/** A variable of the environment. */
export function variable(name: string): string | undefined {
  try {
    return processLike()?.env?.[name];
  } catch {
    // Deno without --allow-env.
    return undefined;
  }
}

/** A module of Node, where there is one. */
export function builtin<T>(name: string): T | undefined {
  return processLike()?.getBuiltinModule?.(name) as T | undefined;
}

/** Whether `WebSocket` takes headers as an extension of its second argument, as browsers never do. */
export function socketTakesHeaders(): boolean {
  return isNodeLike();
}
