// Cache breakpoints of Anthropic's Messages API. The server places them, because positions of the caller's messages do
// not exist in a view.

import type { AnyBody } from "./bodies.js";
import type { CacheBreakpoint } from "./wire.js";

/** The maximum number of breakpoints in a request. */
const MAX_BREAKPOINTS = 4;

type Block = Record<string, unknown> & { cache_control?: { ttl?: string } };

/** The options of the server for breakpoints. */
export interface BreakpointOptions {
  max_breakpoints: number;
  ttl?: string;
}

/**
 * Returns the options for a body that gets breakpoints, and nothing for another body. `requested` is the option of the
 * caller: true, or the maximum. Without it, a body whose messages have breakpoints gets them. The breakpoints of tools and
 * of the system prompt stay, so they count against the maximum.
 */
export function breakpointOptions(
  body: AnyBody,
  requested: boolean | number | undefined,
): BreakpointOptions | undefined {
  if (requested) return { max_breakpoints: requested === true ? MAX_BREAKPOINTS : requested };
  const ofMessages = (body.messages ?? []).flatMap((message) => marked((message as Block).content));
  if (ofMessages.length === 0) return undefined;
  const ofPrefix = [...marked(body.tools), ...marked(body.system)];
  const isLong = ofMessages.some((block) => block.cache_control?.ttl === "1h");
  const free = MAX_BREAKPOINTS - ofPrefix.length;
  return free > 0 ? { max_breakpoints: free, ...(isLong ? { ttl: "3600s" } : {}) } : undefined;
}

/** Merges breakpoints into a request. Its messages are changed in place. */
export function applyBreakpoints(request: AnyBody, breakpoints: readonly CacheBreakpoint[]): void {
  for (const { position, system_block_index: index, merge } of breakpoints) {
    const isSystem = index !== undefined;
    if (isSystem && marked(request.system).length > 0) continue;
    const holder = (isSystem ? request : request.messages?.[position?.message_index ?? -1]) as
      | Block
      | undefined;
    const field = isSystem ? "system" : "content";
    const blocks = holder && blocksOf(holder[field]);
    const block = blocks?.[isSystem ? index : (position?.block_index ?? -1)];
    if (!holder || !block) continue;
    Object.assign(block, merge);
    holder[field] = blocks;
  }
}

/** Returns content as copied blocks. */
export function blocksOf(content: unknown): Block[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return Array.isArray(content) ? content.map((block) => ({ ...block })) : [];
}

function marked(blocks: unknown): Block[] {
  return Array.isArray(blocks) ? blocks.filter((block) => block?.cache_control) : [];
}
