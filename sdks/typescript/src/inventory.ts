// What a server keeps for sandboxes to come: images and named volumes. Extensions of the protocol,
// for holders of an API key.

import { type Contents, single } from "./contents.ts";
import { ByteStream, ValueStream } from "./streams.ts";
import { type Abortable, query, segment, type Target } from "./transport.ts";
import type {
  ImageInfo,
  ImportImagesResponse,
  ListImagesResponse,
  ListVolumesResponse,
  PlatformSpec,
  PruneImagesResponse,
  PullEvent,
  PullImageRequest,
  VolumeSummary,
} from "./wire.ts";

const TAR = "application/x-tar";

/** How an image is brought to a server. */
export interface PullOptions extends Abortable {
  /** Credentials for a private registry. */
  auth?: { username: string; password: string } | undefined;
  /** The platform; nothing is the server's own. */
  platform?: PlatformSpec | undefined;
}

/** The images of a server. */
export class Images {
  readonly #server: Target;

  /** @internal */
  constructor(server: Target) {
    this.#server = server;
  }

  /** All of them, and what they take. */
  async list(options: Abortable = {}): Promise<ListImagesResponse> {
    return this.#server.json("GET", "/images", options);
  }

  /**
   * Brings an image to the server. The last event is `done` or `error`; a stream that ends without
   * either was cut off. Leaving the loop gives the download up; what has come stays for the next.
   */
  async pull(image: string, options: PullOptions = {}): Promise<ValueStream<PullEvent>> {
    const request: PullImageRequest = { image: { uri: image } };
    if (options.auth !== undefined) request.image.auth = options.auth;
    if (options.platform !== undefined) request.platform = options.platform;
    // A registry may think about its first answer for long.
    const call = { json: request, timeoutSeconds: null, signal: options.signal };
    return new ValueStream(await this.#server.send("POST", "/images/pull", call), "the progress of a download");
  }

  /**
   * Brings images to the server from an archive: an OCI layout, `docker save`, or a root filesystem,
   * which needs a name.
   */
  async import(archive: Contents, options: Abortable & { name?: string } = {}): Promise<ImportImagesResponse> {
    const body = await single(archive, TAR);
    return this.#server.json("POST", "/images/import", {
      ...body.call,
      query: query([["name", options.name]]),
      timeoutSeconds: null,
      signal: options.signal,
    });
  }

  /** An image as an OCI archive. */
  async export(reference: string, options: Abortable = {}): Promise<ByteStream> {
    const call = { query: query([["reference", reference]]), timeoutSeconds: null, signal: options.signal };
    return new ByteStream(await this.#server.send("GET", "/images/export", call));
  }

  /**
   * Gives an image that is there, by name or id, another name, which means exactly this image from now on;
   * answers it with all its names.
   */
  async tag(reference: string, name: string, options: Abortable = {}): Promise<ImageInfo> {
    const parameters = query([["reference", reference], ["name", name]]);
    return this.#server.json("POST", "/images/tag", { query: parameters, signal: options.signal });
  }

  /** Takes a name from an image; what nobody uses goes with {@link Images.prune}. */
  async remove(reference: string, options: Abortable = {}): Promise<void> {
    await this.#server.done("DELETE", `/images/${segment(reference)}`, options);
  }

  /** Removes images without a name that nobody uses, and layers without an image. */
  async prune(options: Abortable = {}): Promise<PruneImagesResponse> {
    return this.#server.json("POST", "/images/prune", { timeoutSeconds: null, signal: options.signal });
  }
}

/** The named volumes of a server. */
export class Volumes {
  readonly #server: Target;

  /** @internal */
  constructor(server: Target) {
    this.#server = server;
  }

  /** All of them, and who has them mounted. */
  async list(options: Abortable = {}): Promise<ListVolumesResponse> {
    return this.#server.json("GET", "/volumes", options);
  }

  /** Makes a volume. A sandbox that names one that is not there makes it as well. */
  async create(name: string, options: Abortable = {}): Promise<VolumeSummary> {
    return this.#server.json("POST", "/volumes", { json: { name }, signal: options.signal });
  }

  /** Removes a volume with all it holds; one that a sandbox has mounted only when forced. */
  async remove(name: string, options: Abortable & { force?: boolean } = {}): Promise<void> {
    const call = { query: query([["force", options.force === true ? true : undefined]]), signal: options.signal };
    await this.#server.done("DELETE", `/volumes/${segment(name)}`, call);
  }
}
