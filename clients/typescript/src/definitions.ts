// The definitions of the service's tools, kept for sessions that are opened again.

import type { Format, ToolDefinition } from "./wire.js";

const MAX_AGE_MS = 300_000;
const MAX_LISTS = 1_000;
const FORMATS = ["anthropic_messages", "openai_chat", "openai_responses"] as const satisfies Format[];

/** The lists of definitions of one client. The policy of a session selects its tools, so each session has its own. */
export class DefinitionLists {
  readonly #lists = new Map<string, { definitions: ToolDefinition[]; readAt: number }>();

  /** Returns the definitions for a session, unless they were read more than five minutes ago. */
  get(path: string, format: Format): ToolDefinition[] | undefined {
    const list = this.#lists.get(keyOf(path, format));
    const isFresh = list && performance.now() - list.readAt < MAX_AGE_MS;
    // A caller can change its definitions, for example add a cache breakpoint.
    return isFresh ? structuredClone(list.definitions) : undefined;
  }

  /** Keeps the definitions for a session. */
  set(path: string, format: Format, definitions: ToolDefinition[]): void {
    const key = keyOf(path, format);
    // A list that was read again becomes the newest one.
    this.#lists.delete(key);
    this.#lists.set(key, { definitions: structuredClone(definitions), readAt: performance.now() });
    const [oldest] = this.#lists.keys();
    if (this.#lists.size > MAX_LISTS && oldest !== undefined) this.#lists.delete(oldest);
  }

  /** Removes the lists of a session, whose policy may have changed. */
  delete(path: string): void {
    for (const format of FORMATS) this.#lists.delete(keyOf(path, format));
  }
}

/** Returns the key of a list. */
function keyOf(path: string, format: Format): string {
  return `${format} ${path}`;
}
