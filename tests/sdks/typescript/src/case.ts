// The form of a case.

import type { Run } from "./world.js";

/** A use of an SDK that has the same result on both ways. */
export interface Case {
  run: (run: Run) => Promise<unknown>;
  /**
   * The header `x-palimpsest-body` of each response through the gateway to a request with a conversation. `stateful`:
   * `original`, then `unmanaged`. `managed`: `original`, then `view` too. `null`: the case sends no conversation.
   * Default: `original`.
   */
  body?: "stateful" | "managed" | null;
  /** The number of streams that the case aborts. Default: 0. */
  aborts?: number;
  /** False if the case is skipped on Deno. Default: true. */
  onDeno?: boolean;
}

/** Cases by name. */
export type Cases = Record<string, Case>;
