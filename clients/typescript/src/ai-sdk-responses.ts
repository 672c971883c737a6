// Responses of the AI SDK with their usage, as the server reads it from Anthropic's responses.

import { blockOf, type Part, type WireMessage } from "./ai-sdk-messages.js";

/** The usage of a response. Up to version 5 of the AI SDK, the fields are numbers. */
interface Usage {
  inputTokens?: number | { total?: number; cacheRead?: number; cacheWrite?: number };
  outputTokens?: number | { total?: number };
  cachedInputTokens?: number;
}

type Block = WireMessage["content"][number];

/** The number of responses that are kept for conversations that run at the same time. */
const MAX_RESPONSES = 16;

/** The last responses of a model, by their content. */
export class Responses {
  readonly #byContent = new Map<string, { content: Block[]; usage: object }>();

  /** Records a response. `content` are its parts. */
  record(model: string, content: readonly object[], usage: unknown): void {
    const counts = countsOf(usage as Usage);
    const blocks = (content as Part[])
      .filter((part) => part.type !== "source")
      .map((part) => blockOf(parsed(part)));
    if (!counts || blocks.length === 0) return;
    const response = { type: "message", role: "assistant", model, content: blocks, stop_reason: "end_turn" };
    this.#byContent.set(keyOf(blocks), { ...response, usage: counts });
    const [oldest] = this.#byContent.keys();
    if (this.#byContent.size > MAX_RESPONSES && oldest !== undefined) this.#byContent.delete(oldest);
  }

  /** Returns the response that is the last one of a conversation, with the synced ids of its calls. */
  lastOf(messages: readonly WireMessage[], originalId: (synced: string) => string): object | undefined {
    const last = messages.findLast((message) => message.role === "assistant");
    const isCall = (block: Block) => block.type === "tool_use";
    const content = last?.content.map((block) =>
      isCall(block) ? { ...block, id: originalId(String(block.id)) } : block,
    );
    const response = content && this.#byContent.get(keyOf(content));
    const calls = last?.content.filter(isCall) ?? [];
    return (
      response && {
        ...response,
        content: response.content.map((block) => (isCall(block) ? (calls.shift() ?? block) : block)),
      }
    );
  }

  /** Records a streamed response at its end. The stream is passed on. `onCall` receives its calls. */
  recording<StreamPart extends object>(
    model: string,
    stream: ReadableStream<StreamPart>,
    onCall: (part: Part) => void,
  ): ReadableStream<StreamPart> {
    const content: Part[] = [];
    const texts = new Map<unknown, Part & { text: string }>();
    const transform = (chunk: StreamPart, controller: TransformStreamDefaultController<StreamPart>) => {
      const part = chunk as unknown as Part;
      // Assigned before the agent receives the call and runs its tool.
      if (part.type === "tool-call") onCall(part);
      controller.enqueue(chunk);
      if (part.type === "text-start") {
        const text = { type: "text", text: "" };
        texts.set(part.id, text);
        content.push(text);
      } else if (part.type === "text-delta") {
        const text = texts.get(part.id);
        if (text) text.text += part.delta;
      } else if (part.type === "tool-call") {
        content.push(part);
      } else if (part.type === "finish") {
        this.record(model, content, part.usage);
      }
    };
    return stream.pipeThrough(new TransformStream({ transform }));
  }
}

/** Returns the key of the blocks of a response. Providers and the AI SDK change thinking. */
function keyOf(blocks: readonly { type?: string }[]): string {
  return JSON.stringify(blocks.filter((block) => block.type !== "thinking"));
}

/** Returns a part of a response as a part of a message. The input of its call is JSON. */
function parsed(part: Part): Part {
  if (part.type !== "tool-call" || typeof part.input !== "string") return part;
  try {
    return { ...part, input: JSON.parse(part.input || "{}") };
  } catch {
    // A model can write an input that is no JSON. The AI SDK reports it.
    return part;
  }
}

/** Returns the usage with the names of Anthropic, or nothing if the meaning of its fields depends on the provider. */
function countsOf({ inputTokens: input, outputTokens: output, cachedInputTokens: cached }: Usage) {
  const written = typeof output === "number" ? output : output?.total;
  if (typeof input === "number") {
    return cached || written === undefined ? undefined : { input_tokens: input, output_tokens: written };
  }
  if (input?.total === undefined || written === undefined) return undefined;
  const { total, cacheRead = 0, cacheWrite = 0 } = input;
  const cache = { cache_read_input_tokens: cacheRead, cache_creation_input_tokens: cacheWrite };
  return { input_tokens: total - cacheRead - cacheWrite, output_tokens: written, ...cache };
}
