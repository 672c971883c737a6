// Messages of the AI SDK as messages of Anthropic's format, and back.
//
// A part that the view shows unchanged returns as the original object, with all options of providers. So the format in
// between needs no field for them.

import { CallIds } from "./ai-sdk-ids.js";
import { blocksOf } from "./cache.js";

/** A part of a message of the AI SDK. */
export interface Part {
  type: string;
  [field: string]: unknown;
}

/** A message of the AI SDK: a `ModelMessage`, or an entry of the prompt of a language model. */
export interface SdkMessage {
  role: string;
  content: string | readonly object[];
}

type Block = { type?: string; [field: string]: unknown };

/** A message in Anthropic's format. */
export interface WireMessage {
  role: "user" | "assistant" | "system";
  content: Block[];
}

/** A part with the message that contains it. */
interface Origin {
  message: SdkMessage;
  part: Part;
  /** Parts around it that have no content for a model. */
  before?: Part[];
  after?: Part[];
}

/** The types of parts that a provider needs and that have no content. */
const WITHOUT_CONTENT = new Set(["custom", "tool-approval-request", "tool-approval-response"]);

/** The conversation in Anthropic's format, and the way back. */
export class Conversation {
  /** The system messages before the conversation. */
  readonly lead: SdkMessage[];
  readonly messages: WireMessage[];
  readonly #origins = new Map<string, Origin[]>();
  readonly #ids = new CallIds();

  constructor(messages: readonly SdkMessage[]) {
    const first = messages.findIndex((message) => message.role !== "system");
    const start = first < 0 ? messages.length : first;
    this.lead = messages.slice(0, start);
    const wire = messages.slice(start).map((message) => this.#wireOf(message));
    this.messages = wire.filter((message) => message.content.length > 0);
  }

  /** The system prompt, as text. */
  get system(): string | undefined {
    const texts = this.lead.map((message) => message.content);
    return texts.length > 0 ? texts.join("\n") : undefined;
  }

  /** Returns the id of the conversation for the id of a synced call. */
  originalId(synced: string): string {
    return this.#ids.original(synced);
  }

  /** Returns the messages of a view, with its cache breakpoints. `system` is the system prompt of the view. */
  restore(view: readonly unknown[], system: unknown): SdkMessage[] {
    const restored = this.#restoredSystem(blocksOf(system));
    let open: { message: SdkMessage; parts: Part[] } | undefined;
    const blocks = (view as WireMessage[]).flatMap(({ role, content }) =>
      blocksOf(content).map((block) => ({ role, block })),
    );
    // A view removes old messages first, so equal blocks are matched from the end.
    const origins = blocks.reverse().map(({ role, block }) => {
      const origin = this.#originOf(role, block);
      return { ...origin, part: withBreakpoint(origin.part, block) };
    });
    for (const { message, part, before = [], after = [] } of origins.reverse()) {
      const parts = [...before, part, ...after];
      // Parts of one message stay together, because options of providers belong to the message.
      if (open?.message === message) {
        open.parts.push(...parts);
      } else {
        open = { message, parts };
        restored.push({ ...message, content: open.parts });
      }
    }
    return restored.map(simplified);
  }

  /** Returns the system messages: those before the conversation, and those that the view moved there. */
  #restoredSystem(blocks: Block[]): SdkMessage[] {
    const last = this.lead.at(-1);
    // The messages before the conversation are the first block, so a breakpoint of the block is at the last one.
    const own = last ? blocks.shift() : undefined;
    const lead = last && own ? [...this.lead.slice(0, -1), withBreakpoint(last, own)] : this.lead;
    const moved = blocks.map((block) =>
      withBreakpoint<SdkMessage>({ role: "system", content: String(block.text) }, block),
    );
    return [...lead, ...moved];
  }

  #wireOf(message: SdkMessage): WireMessage {
    const { role, content } = message;
    const parts = typeof content === "string" ? [{ type: "text", text: content }] : (content as Part[]);
    const wireRole = role === "assistant" || role === "system" ? role : "user";
    const blocks: Block[] = [];
    let before: Part[] = [];
    let last: Origin | undefined;
    // A message of such parts alone is sent as their JSON, because a view cannot contain an empty message.
    const isEmpty = parts.every((part) => WITHOUT_CONTENT.has(part.type));
    const calls = parts.filter((part) => part.type === "tool-call");
    this.#ids.begin(calls.map((part) => String(part.toolCallId)));
    for (const part of parts) {
      if (!isEmpty && WITHOUT_CONTENT.has(part.type)) {
        before.push(part);
        continue;
      }
      const block = this.#withSyncedId(blockOf(part));
      last = { message, part, before };
      before = [];
      for (const key of keysOf(wireRole, block)) {
        this.#origins.set(key, [...(this.#origins.get(key) ?? []), last]);
      }
      blocks.push(block);
    }
    if (last) last.after = before;
    return { role: wireRole, content: blocks };
  }

  #withSyncedId(block: Block): Block {
    if (block.type === "tool_use") return { ...block, id: this.#ids.ofCall(String(block.id)) };
    if (block.type !== "tool_result") return block;
    return { ...block, tool_use_id: this.#ids.ofResult(String(block.tool_use_id)) };
  }

  /** Returns the original of a block, or a new part if a level changed it. */
  #originOf(role: WireMessage["role"], block: Block): Origin {
    const [exact, byId] = keysOf(role, block).map((key) => this.#take(key));
    if (exact) return exact;
    if (byId) return { ...byId, part: changedPart(byId.part, block) };
    // The service appends the id of a user turn to its text.
    const text = String(block.text ?? "");
    const marked = /^([\s\S]*)\n\[id:\w+\]$/.exec(text);
    const origin = marked && this.#take(keysOf(role, { type: "text", text: marked[1] })[0] ?? "");
    if (origin) return origin.part.type === "text" ? { ...origin, part: { ...origin.part, text } } : origin;
    const part = newPart(block);
    return { message: { role: part.type === "tool-result" ? "tool" : role, content: [] }, part };
  }

  /** Returns the last origin with a key. The first one stays, because a view can repeat a block. */
  #take(key: string): Origin | undefined {
    const origins = this.#origins.get(key);
    return origins && origins.length > 1 ? origins.pop() : origins?.[0];
  }
}

/**
 * Returns a part or a message with the cache breakpoint of its block, as an option of Anthropic's provider. A breakpoint
 * of the caller stays. Other providers ignore the option.
 */
function withBreakpoint<Holder extends object>(holder: Holder, { cache_control }: Block): Holder {
  if (!cache_control) return holder;
  const { providerOptions } = holder as { providerOptions?: { anthropic?: object } };
  const anthropic = { cacheControl: cache_control, ...providerOptions?.anthropic };
  return { ...holder, providerOptions: { ...providerOptions, anthropic } };
}

/** Returns the keys of a block: by its content, and by the id of its call. */
function keysOf(role: string, block: Block): string[] {
  if (block.type === "tool_use") return [`call ${block.id}`];
  const exact = `${role} ${JSON.stringify(ordered(block))}`;
  return block.type === "tool_result" ? [exact, `result ${block.tool_use_id}`] : [exact];
}

/** Returns a value whose objects have their fields in order, and no breakpoints. */
function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(
    ([name, field]) => name !== "cache_control" && field !== undefined,
  );
  return Object.fromEntries(entries.sort().map(([name, field]) => [name, ordered(field)]));
}

/** Returns a part as a block of Anthropic's format. */
export function blockOf(part: Part): Block {
  if (part.type === "text") return { type: "text", text: part.text };
  if (part.type === "reasoning") {
    const signature = JSON.stringify(part.providerOptions ?? {});
    return { type: "thinking", thinking: part.text, signature };
  }
  if (part.type === "tool-call" && !part.providerExecuted) {
    return { type: "tool_use", id: part.toolCallId, name: part.toolName, input: part.input };
  }
  if (part.type === "tool-result") {
    const { type, value, reason } = part.output as { type: string; value?: unknown; reason?: string };
    const id = { type: "tool_result", tool_use_id: part.toolCallId };
    const isError = type.startsWith("error") || type === "execution-denied";
    return {
      ...id,
      content: resultOf(value === undefined ? (reason ?? "") : value),
      ...(isError ? { is_error: true } : {}),
    };
  }
  if (part.type === "file" || part.type === "image") {
    return mediaOf(part.data ?? part.image, String(part.mediaType ?? "image/png")) ?? opaque(part);
  }
  return opaque(part);
}

/** Represents a part without an equivalent by its JSON. The part itself returns as long as the view shows the block. */
function opaque(part: object): Block {
  // The JSON of bytes would be a list of numbers.
  const encoded = (_: string, value: unknown) => (isBytes(value) ? base64Of(value) : value);
  return { type: "text", text: JSON.stringify(part, encoded) };
}

function resultOf(value: unknown): string | Block[] {
  if (typeof value === "string") return value;
  const entries = Array.isArray(value) ? (value as Part[]) : [];
  const isContent =
    entries.length > 0 && entries.every((entry) => entry?.type === "text" || entry?.mediaType);
  if (!isContent) return JSON.stringify(value);
  return entries.map((entry) =>
    entry.type === "text"
      ? { type: "text", text: entry.text }
      : (mediaOf(entry.data ?? entry.url, String(entry.mediaType)) ?? opaque(entry)),
  );
}

/** Returns an image or a PDF as a block. Other files have no block, and files that only the provider has. */
function mediaOf(data: unknown, mediaType: string): Block | undefined {
  const isImage = /^image(\/|$)/.test(mediaType);
  if (!isImage && mediaType !== "application/pdf") return undefined;
  const text = locationOf(data);
  if (text === undefined) return undefined;
  const [, encoded] = /^data:[^,]*;base64,(.*)$/s.exec(text) ?? [];
  const source = /^https?:/.test(text)
    ? { type: "url", url: text }
    : { type: "base64", media_type: fullMediaType(mediaType, encoded ?? text), data: encoded ?? text };
  return { type: isImage ? "image" : "document", source };
}

/** Returns the URL of a file, or its bytes in base64. */
function locationOf(data: unknown): string | undefined {
  if (typeof data === "string") return data;
  if (data instanceof URL) return String(data);
  if (isBytes(data)) return base64Of(data);
  // Version 7 of the AI SDK names the form of the data.
  const { type, data: content, url } = (data ?? {}) as { type?: string; data?: unknown; url?: unknown };
  if (type === "data") return locationOf(content);
  return type === "url" ? String(url) : undefined;
}

/** The beginnings of images in base64. */
const IMAGES = { iVBORw0KGgo: "image/png", "/9j/": "image/jpeg", R0lGOD: "image/gif", UklGR: "image/webp" };

/** Returns the media type of a file. `image` and a wildcard are no media types of the format. */
function fullMediaType(mediaType: string, data: string): string {
  if (!/^image(\/\*)?$/.test(mediaType)) return mediaType;
  const found = Object.entries(IMAGES).find(([beginning]) => data.startsWith(beginning));
  return found?.[1] ?? "image/png";
}

function isBytes(value: unknown): value is Uint8Array | ArrayBuffer {
  return value instanceof Uint8Array || value instanceof ArrayBuffer;
}

function base64Of(data: Uint8Array | ArrayBuffer): string {
  const bytes = new Uint8Array(data);
  let binary = "";
  // A call with all bytes would exceed the maximum number of arguments.
  for (let at = 0; at < bytes.length; at += 8_192)
    binary += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(binary);
}

/** Returns a part with the content of a block that a level changed. */
function changedPart(part: Part, block: Block): Part {
  if (part.type !== "tool-result") return part;
  return { ...part, output: outputOf(block) };
}

function outputOf(block: Block): Part {
  const content = block.content;
  const blocks = blocksOf(content);
  const texts = blocks.map((entry) => String(entry.text ?? `[${entry.type}]`));
  return { type: block.is_error ? "error-text" : "text", value: texts.join("\n") };
}

function newPart(block: Block): Part {
  if (block.type === "tool_use") {
    return { type: "tool-call", toolCallId: block.id, toolName: block.name, input: block.input };
  }
  if (block.type === "tool_result") {
    return {
      type: "tool-result",
      toolCallId: block.tool_use_id,
      toolName: "unknown",
      output: outputOf(block),
    };
  }
  return { type: "text", text: String(block.text ?? "") };
}

/** Returns system messages with their text, as the AI SDK has them. */
function simplified(message: SdkMessage): SdkMessage {
  if (message.role !== "system" || typeof message.content === "string") return message;
  return { ...message, content: (message.content as Part[]).map((part) => part.text).join("\n") };
}
