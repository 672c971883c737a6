// The log of the warnings in replies.

import type { SyncReply } from "./wire.js";

const MAX_KEYS = 1_000;

/** A log for warnings, such as `console`. */
export interface Logger {
  warn(message: string): void;
}

/** Logs the warnings of the views of one client, each code once per session. */
export class WarningLog {
  readonly #logger: Logger;
  readonly #logged = new Set<string>();

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Logs the warnings of a reply that were not logged for its session. */
  log({ session, warnings }: SyncReply): void {
    for (const { code, detail } of warnings) {
      const key = `${session} ${code}`;
      if (this.#logged.has(key)) continue;
      this.#logged.add(key);
      const [oldest] = this.#logged;
      if (this.#logged.size > MAX_KEYS && oldest !== undefined) this.#logged.delete(oldest);
      this.#logger.warn(`palimpsest: ${session}: ${detail} (${code})`);
    }
  }
}
