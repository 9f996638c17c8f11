// Directories of this machine as archives, in Node, Bun and Deno. What comes out of a sandbox is
// not trusted: nothing is written outside of the directory that was named, and no link is followed.

import { FailedError, UnreadableError } from "./errors.ts";
import { builtin } from "./runtime.ts";
import { packTar, type TarInput, type TarRead, unpackTar } from "./tar.ts";

/** What came of a download. */
export interface DownloadedDirectory {
  /** Files, directories and links that were made. */
  entries: number;
  /** Bytes of their contents. */
  bytes: number;
  /** Links that lead out of the directory, and links to other files of it, which are not made. */
  skipped: string[];
}

interface Stats {
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
  mode: number;
  mtimeMs: number;
  size: number;
}

interface Handle {
  appendFile(data: Uint8Array): Promise<unknown>;
  close(): Promise<void>;
  createReadStream(options?: { start?: number; end?: number }): AsyncIterable<Uint8Array>;
}

interface FileSystem {
  readdir(path: string): Promise<string[]>;
  lstat(path: string): Promise<Stats>;
  readlink(path: string): Promise<string>;
  open(path: string, flags: string, mode?: number): Promise<Handle>;
  mkdir(path: string, options?: { recursive?: boolean; mode?: number }): Promise<unknown>;
  chmod(path: string, mode: number): Promise<void>;
  symlink(target: string, path: string): Promise<void>;
  rm(path: string, options: { force: boolean }): Promise<void>;
}

function fileSystem(): FileSystem {
  const fs = builtin<FileSystem>("node:fs/promises");
  if (fs === undefined) throw new FailedError("this runtime", "without files", "use uploadArchive and downloadArchive");
  return fs;
}

/** A directory of this machine as a tar stream. */
export function packDirectory(directory: string): AsyncIterable<Uint8Array> {
  return packTar(entries(fileSystem(), directory, ""));
}

async function* entries(fs: FileSystem, root: string, below: string): AsyncGenerator<TarInput> {
  for (const name of (await fs.readdir(below === "" ? root : `${root}/${below}`)).sort()) {
    const inside = below === "" ? name : `${below}/${name}`;
    const path = `${root}/${inside}`;
    const stats = await fs.lstat(path);
    const common = { name: inside, mode: stats.mode & 0o7777, modifiedSeconds: stats.mtimeMs / 1000 };
    if (stats.isDirectory()) {
      yield { ...common, type: "directory" };
      yield* entries(fs, root, inside);
    } else if (stats.isSymbolicLink()) {
      yield { ...common, type: "symlink", target: await fs.readlink(path) };
    } else if (stats.isFile()) {
      yield { ...common, contents: { size: stats.size, stream: contents(fs, path, stats.size) } };
    }
    // Sockets, pipes and devices mean nothing elsewhere.
  }
}

async function* contents(fs: FileSystem, path: string, size: number): AsyncGenerator<Uint8Array> {
  if (size === 0) return;
  const handle = await fs.open(path, "r");
  try {
    // A file that grows meanwhile is sent as long as it was.
    yield* handle.createReadStream({ start: 0, end: size - 1 });
  } finally {
    // Reading to the end has closed it already.
    await handle.close().catch(() => {});
  }
}

/** Unpacks a tar stream into a directory of this machine, which is made when it is not there. */
export async function downloadDirectory(archive: AsyncIterable<Uint8Array>, local: string): Promise<DownloadedDirectory> {
  const fs = fileSystem();
  await fs.mkdir(local, { recursive: true });
  const done: DownloadedDirectory = { entries: 0, bytes: 0, skipped: [] };
  // Set when all is written: a directory without write permission must not refuse its own files.
  const modes: [string, number][] = [];
  for await (const entry of unpackTar(archive)) {
    const steps = stepsOf(entry.name);
    if (steps.length === 0) continue;
    const path = `${local}/${steps.join("/")}`;
    await makeParents(fs, local, steps.slice(0, -1));
    if (entry.type === "directory") {
      await makeDirectory(fs, path);
      modes.push([path, entry.mode]);
    } else if (entry.type === "file") {
      done.bytes += await writeFile(fs, path, entry);
    } else if (entry.type === "symlink" && staysInside(steps, entry.target ?? "")) {
      await fs.rm(path, { force: true });
      await fs.symlink(entry.target ?? "", path);
    } else {
      done.skipped.push(entry.name);
      continue;
    }
    done.entries++;
  }
  for (const [path, mode] of modes.reverse()) await fs.chmod(path, mode);
  return done;
}

function stepsOf(name: string): string[] {
  const steps = name.split("/").filter((step) => step !== "" && step !== ".");
  if (steps.includes("..") || name.startsWith("/") || name.includes("\0")) {
    throw new UnreadableError("an archive", `${JSON.stringify(name)} leads out of the directory`, "do not trust this sandbox");
  }
  return steps;
}

/** Whether a link at this place leads to a place in the same directory. */
function staysInside(steps: string[], target: string): boolean {
  if (target.startsWith("/") || target === "") return false;
  const way = target.split("/").filter((step) => step !== "" && step !== ".");
  const inside = way.findIndex((step) => step !== "..");
  const up = inside < 0 ? way.length : inside;
  // After another link, ".." leads elsewhere than it reads.
  return up <= steps.length - 1 && !way.slice(up).includes("..");
}

async function makeParents(fs: FileSystem, local: string, steps: string[]): Promise<void> {
  let path = local;
  for (const step of steps) {
    path += `/${step}`;
    await makeDirectory(fs, path);
  }
}

/** Makes a directory; what stands there and is none, as a link to one, is in the way. */
async function makeDirectory(fs: FileSystem, path: string): Promise<void> {
  try {
    await fs.mkdir(path);
  } catch (error) {
    if ((error as { code?: string }).code !== "EEXIST") throw error;
    if (!(await fs.lstat(path)).isDirectory()) {
      throw new UnreadableError("an archive", `${path} is in the way and no directory`, "download to an empty directory");
    }
  }
}

async function writeFile(fs: FileSystem, path: string, entry: TarRead): Promise<number> {
  await fs.rm(path, { force: true });
  // "x" follows no link and opens nothing that was there.
  const file = await fs.open(path, "wx", entry.mode & 0o777);
  let bytes = 0;
  try {
    for await (const piece of entry.contents()) {
      await file.appendFile(piece);
      bytes += piece.length;
    }
  } finally {
    await file.close();
  }
  await fs.chmod(path, entry.mode & 0o777);
  return bytes;
}
