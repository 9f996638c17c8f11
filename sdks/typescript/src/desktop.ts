// The screen, mouse and keyboard of a sandbox of a graphical image, by the helper inside it.

import { NotReadyError, OpenSandboxError, FailedError } from "./errors.ts";
import type { Sandbox } from "./sandbox.ts";
import { type Abortable, pause, query, type Target } from "./transport.ts";

/** Where the helper of the images `browser` and `desktop` listens. */
const HELPER_PORT = 6080;

/** How long the X server and what is drawn on it may take to be there. */
const READY_TIMEOUT_SECONDS = 60;

/** A port that begins to listen tells nobody, so that asking again is all there is. */
const ASK_AGAIN_SECONDS = 0.2;

/** For so long the screen may not change to be still. */
const QUIET_MILLISECONDS = 300;

/** How long to wait for that. */
const STILL_MILLISECONDS = 10_000;

/** A button of the mouse. */
export type MouseButton = "left" | "middle" | "right" | "back" | "forward";

/** Something to do. Coordinates are those of the last picture, whatever its size was. */
export type DesktopAction =
  | { type: "move"; x: number; y: number }
  /** Where the pointer is, unless coordinates say otherwise; `hold` are keys that are held meanwhile. */
  | { type: "click"; x?: number; y?: number; button?: MouseButton; count?: number; hold?: string[] }
  | { type: "press"; x?: number; y?: number; button?: MouseButton }
  | { type: "release"; x?: number; y?: number; button?: MouseButton }
  /** Along all points, the button pressed at the first and released at the last. */
  | { type: "drag"; path: { x: number; y: number }[]; button?: MouseButton; hold?: string[] }
  /** In notches of a wheel: `dy` down, `dx` to the right. */
  | { type: "scroll"; x?: number; y?: number; dx?: number; dy?: number; hold?: string[] }
  | { type: "type"; text: string }
  /** A combination such as `ctrl+shift+t`, or a list of keys that are pressed together. */
  | { type: "key"; keys: string | string[]; hold_ms?: number }
  /** For a time, or until the screen is still. */
  | { type: "wait"; ms?: number; still?: { quiet_ms?: number; timeout_ms?: number } };

/** How a picture is taken. */
export interface PictureOptions extends Abortable {
  /** Makes it smaller, so that no edge is longer. */
  maxEdge?: number | undefined;
  /** PNG unless said. */
  format?: "png" | "jpeg" | undefined;
  /** Of a JPEG, from 1 to 100. */
  quality?: number | undefined;
  /** Whether the pointer is in it. */
  cursor?: boolean | undefined;
}

/** Which part of the screen, in its coordinates. */
export interface Region {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Whose coordinates actions have: a picture's number, or 0 for the screen; the last picture's unless said. */
export interface ActOptions extends Abortable {
  picture?: number | undefined;
}

/** What the helper says of the desktop. */
export interface DesktopInfo {
  width: number;
  height: number;
  cursor: { x: number; y: number };
  window: DesktopWindow | null;
  live_view: { page: string; view_only: string; websocket: string };
  browser: { is_running: boolean; cdp: string } | null;
}

/** A window of the desktop. */
export interface DesktopWindow {
  id: number;
  title: string;
  class: string;
  pid?: number;
  x: number;
  y: number;
  width: number;
  height: number;
  is_focused: boolean;
}

/**
 * The desktop of a sandbox of a graphical image: `new Desktop(sandbox)`, then {@link Desktop.ready}.
 *
 * ```ts
 * const desktop = new Desktop(sandbox);
 * await desktop.ready();
 * const picture = await desktop.actAndSee([{ type: "click", x: 10, y: 20 }, { type: "type", text: "hello" }]);
 * ```
 */
export class Desktop {
  /** The sandbox. */
  readonly sandbox: Sandbox;
  readonly #port: number;
  #target: Target | undefined;

  constructor(sandbox: Sandbox, port: number = HELPER_PORT) {
    this.sandbox = sandbox;
    this.#port = port;
  }

  /** Waits until the screen is there and does not change for a moment. */
  async ready(options: Abortable & { timeoutSeconds?: number | undefined } = {}): Promise<void> {
    const seconds = options.timeoutSeconds ?? READY_TIMEOUT_SECONDS;
    const deadline = performance.now() + seconds * 1000;
    for (;;) {
      try {
        await this.waitUntilStill(options);
        return;
      } catch (error) {
        if (!(error instanceof OpenSandboxError)) throw error;
        const left = (deadline - performance.now()) / 1000;
        if (left <= 0) throw new NotReadyError(this.sandbox.id, seconds, error);
        await pause(Math.min(ASK_AGAIN_SECONDS, left), options.signal);
      }
    }
  }

  /** Size of the screen, where the pointer is, the focused window, the browser, paths of the live view. */
  async info(options: Abortable = {}): Promise<DesktopInfo> {
    return this.#ask((helper) => helper.json("GET", "/desktop", options), options);
  }

  /** A picture of the screen, or of a region of it. */
  async screenshot(options: PictureOptions & { region?: Region | undefined } = {}): Promise<Uint8Array<ArrayBuffer>> {
    const { region, signal } = options;
    const parameters = query([
      ["region", region === undefined ? undefined : [region.x, region.y, region.width, region.height].join(",")],
      ...Object.entries(wirePicture(options)),
    ]);
    return this.#ask((helper) => helper.bytes("GET", "/desktop/screenshot", { query: parameters, signal }), options);
  }

  /** Does actions one after the other, in one request. */
  async act(actions: DesktopAction[], options: ActOptions = {}): Promise<void> {
    await this.#actions({ actions, picture: options.picture }, options);
  }

  /** Does actions, waits until the screen is still, and answers with a picture of it, in one request. */
  async actAndSee(
    actions: DesktopAction[],
    options: ActOptions & PictureOptions & { quietMilliseconds?: number | undefined } = {},
  ): Promise<Uint8Array<ArrayBuffer>> {
    const still = { quiet_ms: options.quietMilliseconds ?? QUIET_MILLISECONDS };
    const then = { ...wirePicture(options), still };
    const done = await this.#actions({ actions, picture: options.picture, then }, options);
    if (done.picture === undefined) throw new FailedError("the desktop", "without a picture", "its helper sent none");
    return Uint8Array.from(atob(done.picture.data), (character) => character.charCodeAt(0));
  }

  /** Waits until nothing changes for so long; false where it still changed at the end of the time. */
  async waitUntilStill(
    options: Abortable & { quietMilliseconds?: number | undefined; timeoutMilliseconds?: number | undefined } = {},
  ): Promise<boolean> {
    const { quietMilliseconds = QUIET_MILLISECONDS, timeoutMilliseconds = STILL_MILLISECONDS, signal } = options;
    const call = { query: query([["quiet_ms", quietMilliseconds], ["timeout_ms", timeoutMilliseconds]]), signal };
    const told = await this.#ask((helper) => helper.json<{ is_still: boolean }>("GET", "/desktop/still", call), options);
    return told.is_still;
  }

  /** The text of the clipboard. */
  async clipboard(options: Abortable = {}): Promise<string> {
    return (await this.#ask((helper) => helper.json<{ text: string }>("GET", "/desktop/clipboard", options), options)).text;
  }

  /** Puts text into the clipboard. */
  async setClipboard(text: string, options: Abortable = {}): Promise<void> {
    await this.#ask((helper) => helper.done("PUT", "/desktop/clipboard", { ...options, json: { text } }), options);
  }

  /** The windows. */
  async windows(options: Abortable = {}): Promise<DesktopWindow[]> {
    const found = await this.#ask(
      (helper) => helper.json<{ windows: DesktopWindow[] }>("GET", "/desktop/windows", options),
      options,
    );
    return found.windows;
  }

  /** Gives the screen another size. */
  async resize(width: number, height: number, options: Abortable = {}): Promise<void> {
    await this.#ask((helper) => helper.done("PUT", "/desktop/size", { ...options, json: { width, height } }), options);
  }

  /**
   * A link by which a person sees the desktop in a browser and, unless `viewOnly`, uses it. It has the sandbox's
   * token in it: give it to nobody who may not use the sandbox.
   */
  async liveView(options: Abortable & { viewOnly?: boolean | undefined } = {}): Promise<string> {
    const paths = (await this.info(options)).live_view;
    const path = options.viewOnly === true ? paths.view_only : paths.page;
    const { url, headers } = await this.sandbox.url(this.#port, options);
    const token = Object.entries(headers).find(([name]) => name.toUpperCase() !== "OPEN-SANDBOX-API-KEY")?.[1];
    const shown = token === undefined ? "" : `${path.includes("?") ? "&" : "?"}${query([["opensandbox_token", token]])}`;
    return `${url}/${path}${shown}`;
  }

  #actions(order: object, { signal }: Abortable): Promise<{ picture?: { data: string } }> {
    const call = { json: order, signal };
    return this.#ask((helper) => helper.json<{ picture?: { data: string } }>("POST", "/desktop/actions", call), { signal });
  }

  async #ask<T>(act: (helper: Target) => Promise<T>, { signal }: Abortable): Promise<T> {
    this.#target ??= await this.sandbox.port(this.#port, signal);
    try {
      return await act(this.#target);
    } catch (error) {
      if (!(error instanceof OpenSandboxError) || ![502, 503, 504].includes(error.status ?? 0)) throw error;
      // Where nothing listens, it is because the image has no desktop, or not yet.
      const why = `nothing answers on port ${this.#port}; the images browser and desktop have one`;
      throw new FailedError(`sandbox ${this.sandbox.id}`, "without a desktop", why, error);
    }
  }
}

function wirePicture({ maxEdge, format, quality, cursor }: PictureOptions): Record<string, string | number | boolean | undefined> {
  return { max_edge: maxEdge, format, quality, cursor };
}
