// Files and directories of a sandbox.

import { type Body, type Contents, form, modeOf, single, type WriteFile, writtenMode } from "./contents.ts";
import { downloadDirectory, type DownloadedDirectory, packDirectory } from "./directories.ts";
import { InvalidArgumentError, OpenSandboxError, UnreadableError } from "./errors.ts";
import type { Sandbox } from "./sandbox.ts";
import { ByteStream } from "./streams.ts";
import { type Abortable, query, type Target } from "./transport.ts";
import type * as wire from "./wire.ts";

/** What a directory is sent as. */
const TAR = "application/x-tar";

/** What is known of a file without following a link. */
export interface FileInfo {
  /** Absolute path. */
  path: string;
  /** The path again, percent-encoded, when its bytes are not UTF-8. */
  rawPath: string | undefined;
  /** What it is, where the daemon says so. */
  type: wire.FileKind | undefined;
  /** Size in bytes. */
  size: number;
  modifiedAt: Date;
  createdAt: Date;
  /** Its owner's name, or number where it has no name. */
  owner: string;
  /** Its group's name, or number where it has no name. */
  group: string;
  /** Its permission bits: `0o644`. */
  mode: number;
}

/** Owner, group and mode to set; what is missing stays as it is. */
export interface Permission {
  /** Permission bits: `0o644`. */
  mode?: number | undefined;
  /** By name or number. */
  owner?: string | undefined;
  /** By name or number. */
  group?: string | undefined;
}

/** What a file is written with. */
export type WriteOptions = Permission & Abortable;

/** The files of a sandbox. */
export class Files {
  readonly #sandbox: Sandbox;
  /** As whom: `/v1/filesystem/{uid}/{gid}`, or nothing for the daemon's own user. */
  readonly #prefix: string;

  /** @internal */
  constructor(sandbox: Sandbox, prefix = "") {
    this.#sandbox = sandbox;
    this.#prefix = prefix;
  }

  /** The files as this user and group see them. */
  asUser(uid: number, gid: number): Files {
    for (const id of [uid, gid]) {
      if (!Number.isInteger(id) || id < 0) throw new InvalidArgumentError(`${id} is not the number of a user or group`);
    }
    return new Files(this.#sandbox, `/v1/filesystem/${uid}/${gid}`);
  }

  #exec(options: Abortable): Promise<Target> {
    return this.#sandbox.exec(options.signal);
  }

  /** Reads a file. */
  async read(path: string, options: Abortable = {}): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.download(path, options)).bytes();
  }

  /** Reads a file that is UTF-8 text. */
  async readText(path: string, options: Abortable = {}): Promise<string> {
    const bytes = await this.read(path, options);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch (error) {
      throw new UnreadableError(path, "it is not UTF-8 text", "read it as bytes", error);
    }
  }

  /** Reads the bytes from `start` up to, and not with, `end`; fewer where the file ends before. */
  async readRange(path: string, start: number, end: number, options: Abortable = {}): Promise<Uint8Array<ArrayBuffer>> {
    if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end) || start < 0) {
      throw new InvalidArgumentError(`${start} to ${end} are not the offsets of bytes`);
    }
    if (end <= start) return new Uint8Array(0);
    return (await this.readRangeHeader(path, `bytes=${start}-${end - 1}`, options)).bytes();
  }

  /** Reads a part of a file, named as in a `Range` header: `bytes=0-99`, `bytes=-5`. */
  async readRangeHeader(path: string, range: string, options: Abortable = {}): Promise<ByteStream> {
    if (!/^[\x20-\x7e]+$/.test(range)) throw new InvalidArgumentError(`${JSON.stringify(range)} is not a range`);
    const exec = await this.#exec(options);
    const call = { query: query([["path", path]]), headers: { Range: range }, signal: options.signal };
    return new ByteStream(await exec.send("GET", `${this.#prefix}/files/download`, call));
  }

  /** Reads `count` lines of a file from line `first` on, which counts from 1. */
  async readLines(path: string, first: number, count: number, options: Abortable = {}): Promise<string> {
    const exec = await this.#exec(options);
    return exec.text("GET", `${this.#prefix}/files/download`, {
      query: query([["path", path], ["offset", first], ["limit", count]]),
      signal: options.signal,
    });
  }

  /** Reads a file as it arrives. */
  async download(path: string, options: Abortable = {}): Promise<ByteStream> {
    const exec = await this.#exec(options);
    const call = { query: query([["path", path]]), signal: options.signal };
    return new ByteStream(await exec.send("GET", `${this.#prefix}/files/download`, call));
  }

  /**
   * Writes a file, whole or not at all; directories on the way are made.
   *
   * ```ts
   * await sandbox.files.write("/tmp/greeting", "hello");
   * console.log(await sandbox.files.readText("/tmp/greeting"));
   * ```
   */
  async write(path: string, contents: Contents, options: WriteOptions = {}): Promise<void> {
    const { signal, ...permission } = options;
    await this.writeAll([{ path, contents, ...permission }], { signal });
  }

  /** Writes files in one request. */
  async writeAll(files: WriteFile[], options: Abortable = {}): Promise<void> {
    if (files.length === 0) return;
    const body = await form(files);
    const exec = await this.#exec(options);
    await explained(body, () =>
      exec.done("POST", `${this.#prefix}/files/upload`, { ...body.call, signal: options.signal }),
    );
  }

  /** What is known of files, by the paths as given. */
  async info(paths: string[], options: Abortable = {}): Promise<Record<string, FileInfo>> {
    const exec = await this.#exec(options);
    const call = { query: each(paths), signal: options.signal };
    const found = await exec.json<Record<string, wire.FileInfo>>("GET", `${this.#prefix}/files/info`, call);
    return Object.fromEntries(Object.entries(found).map(([path, info]) => [path, infoOf(info)]));
  }

  /** Whether a path exists. */
  async exists(path: string, options: Abortable = {}): Promise<boolean> {
    try {
      return Object.keys(await this.info([path], options)).length > 0;
    } catch (error) {
      if (error instanceof OpenSandboxError && error.isNotFound) return false;
      throw error;
    }
  }

  /** Lists a directory, this many levels deep. */
  async list(path: string, options: Abortable & { depth?: number } = {}): Promise<FileInfo[]> {
    const exec = await this.#exec(options);
    const call = { query: query([["path", path], ["depth", options.depth ?? 1]]), signal: options.signal };
    return (await exec.json<wire.FileInfo[]>("GET", `${this.#prefix}/directories/list`, call)).map(infoOf);
  }

  /** Finds files below a directory by a glob. */
  async search(path: string, pattern: string, options: Abortable = {}): Promise<FileInfo[]> {
    const exec = await this.#exec(options);
    const call = { query: query([["path", path], ["pattern", pattern]]), signal: options.signal };
    return (await exec.json<wire.FileInfo[]>("GET", `${this.#prefix}/files/search`, call)).map(infoOf);
  }

  /** Moves a file or directory. */
  async rename(from: string, to: string, options: Abortable = {}): Promise<void> {
    await this.renameAll([{ from, to }], options);
  }

  /** Moves files and directories. */
  async renameAll(moves: { from: string; to: string }[], options: Abortable = {}): Promise<void> {
    const json = moves.map(({ from, to }): wire.RenameFileItem => ({ src: from, dest: to }));
    await (await this.#exec(options)).done("POST", `${this.#prefix}/files/mv`, { json, signal: options.signal });
  }

  /** Removes files; one that is not there is no error. */
  async delete(paths: string[], options: Abortable = {}): Promise<void> {
    const call = { query: each(paths), signal: options.signal };
    await (await this.#exec(options)).done("DELETE", `${this.#prefix}/files`, call);
  }

  /** Makes directories with their parents; with a mode and owner where they are given by path. */
  async createDirectories(paths: string[] | Record<string, Permission>, options: Abortable = {}): Promise<void> {
    const given = Array.isArray(paths) ? Object.fromEntries(paths.map((path) => [path, {}])) : paths;
    const call = { json: permissions(given), signal: options.signal };
    await (await this.#exec(options)).done("POST", `${this.#prefix}/directories`, call);
  }

  /** Removes directories with everything in them. */
  async deleteDirectories(paths: string[], options: Abortable = {}): Promise<void> {
    const call = { query: each(paths), signal: options.signal };
    await (await this.#exec(options)).done("DELETE", `${this.#prefix}/directories`, call);
  }

  /** Sets mode, owner and group of files, by their paths. */
  async setPermissions(files: Record<string, Permission>, options: Abortable = {}): Promise<void> {
    const call = { json: permissions(files), signal: options.signal };
    await (await this.#exec(options)).done("POST", `${this.#prefix}/files/permissions`, call);
  }

  /**
   * Replaces every occurrence of `old` in a file and answers how many there were; nothing where the
   * daemon does not say.
   */
  async replace(path: string, old: string, replacement: string, options: Abortable = {}): Promise<number | undefined> {
    return (await this.replaceAll({ [path]: { old, new: replacement } }, options))[path];
  }

  /** Replaces text in files and answers how often each was found, where the daemon says so. */
  async replaceAll(
    replacements: Record<string, { old: string; new: string }>,
    options: Abortable = {},
  ): Promise<Record<string, number>> {
    const exec = await this.#exec(options);
    const text = await exec.text("POST", `${this.#prefix}/files/replace`, {
      query: query([["verbose", true]]),
      json: replacements,
      signal: options.signal,
    });
    // Older daemons answer nothing.
    const counts = (text.trim() === "" ? {} : JSON.parse(text)) as Record<string, wire.ReplaceFileContentResult>;
    return Object.fromEntries(Object.entries(counts).map(([path, { replacedCount }]) => [path, replacedCount]));
  }

  /** Extension: a directory with everything below it, as a tar stream. */
  async downloadArchive(directory: string, options: Abortable = {}): Promise<ByteStream> {
    const exec = await this.#exec(options);
    const call = { query: query([["path", directory]]), signal: options.signal };
    return new ByteStream(await exec.send("GET", `${this.#prefix}/directories/archive`, call));
  }

  /** Extension: unpacks a tar stream into a directory, which is made when it is not there. */
  async uploadArchive(directory: string, archive: Contents, options: Abortable = {}): Promise<wire.ArchiveResponse> {
    const body = await single(archive, TAR);
    const exec = await this.#exec(options);
    const path = `${this.#prefix}/directories/archive`;
    const call = { ...body.call, query: query([["path", directory]]), timeoutSeconds: null, signal: options.signal };
    return explained(body, () => exec.json<wire.ArchiveResponse>("PUT", path, call));
  }

  /** Extension: sends a directory of this machine. Only in Node, Bun and Deno. */
  async uploadDirectory(local: string, directory: string, options: Abortable = {}): Promise<wire.ArchiveResponse> {
    return this.uploadArchive(directory, packDirectory(local), options);
  }

  /** Extension: brings a directory to this machine. Only in Node, Bun and Deno. */
  async downloadDirectory(directory: string, local: string, options: Abortable = {}): Promise<DownloadedDirectory> {
    return downloadDirectory(await this.downloadArchive(directory, options), local);
  }
}

/** Sends a body; an error of its source comes before the error that it caused. */
async function explained<T>(body: Body, send: () => Promise<T>): Promise<T> {
  try {
    return await send();
  } catch (error) {
    throw body.sourceError() ?? error;
  }
}

function each(paths: string[]): string {
  return query(paths.map((path) => ["path", path]));
}

function permissions(files: Record<string, Permission>): Record<string, wire.FilePermission> {
  const written = (given: Permission): wire.FilePermission => ({
    ...(given.mode === undefined ? {} : { mode: writtenMode(given.mode) }),
    ...(given.owner === undefined ? {} : { owner: given.owner }),
    ...(given.group === undefined ? {} : { group: given.group }),
  });
  return Object.fromEntries(Object.entries(files).map(([path, given]) => [path, written(given)]));
}

function infoOf(info: wire.FileInfo): FileInfo {
  return {
    path: info.path,
    rawPath: info.raw_path ?? undefined,
    type: info.type ?? undefined,
    size: info.size,
    modifiedAt: new Date(info.modified_at),
    createdAt: new Date(info.created_at),
    owner: info.owner,
    group: info.group,
    mode: modeOf(info.mode),
  };
}
