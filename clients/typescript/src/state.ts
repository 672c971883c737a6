// The values that a session remembers between calls.

import type { Format, ToolDefinition } from "./wire.js";

/** The maximum number of calls whose session is kept. */
const MAX_CALLS = 256;

/** The remembered values of a session. `withOptions` returns a session that shares them. */
export class SessionState {
  /** The definitions of the service's tools, by their format. */
  readonly listed = new Map<Format, ToolDefinition[]>();
  /** The names of the service's tools. */
  readonly ownNames = new Set<string>();
  /** The path of the session that took the last body with tools: the named one, or a lane of it. */
  toolPath: string;
  readonly #callPaths = new Map<string, string>();

  constructor(path: string) {
    this.toolPath = path;
  }

  /** Returns the path of the session that took the request of a call. */
  pathOfCall(id: string): string {
    return this.#callPaths.get(id) ?? this.toolPath;
  }

  /** Keeps the path of the session that took the request of a call. */
  setPathOfCall(id: string, path: string): void {
    // A repeated id becomes the newest one.
    this.#callPaths.delete(id);
    this.#callPaths.set(id, path);
    const [oldest] = this.#callPaths.keys();
    if (this.#callPaths.size > MAX_CALLS && oldest !== undefined) this.#callPaths.delete(oldest);
  }
}
