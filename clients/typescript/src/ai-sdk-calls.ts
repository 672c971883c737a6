// Calls of a language model of the AI SDK, whose prompts are synced. The module does not load the AI SDK.

import type { SdkMessage } from "./ai-sdk-messages.js";
import { Responses } from "./ai-sdk-responses.js";
import { type ContextOptions, type SdkView, syncMessages } from "./ai-sdk-sync.js";
import { anyOf } from "./http.js";
import type { Session } from "./session.js";
import { isTooLong, shortened } from "./too-long.js";
import { NotSendableError } from "./view.js";

/** The parameters of a call that a sync reads. */
interface CallParams {
  prompt: readonly SdkMessage[];
  tools?: readonly { type: string }[] | undefined;
  maxOutputTokens?: number | undefined;
  abortSignal?: AbortSignal | undefined;
}

/** A model, whose interface can have any version. */
export interface SdkModel {
  specificationVersion: string;
  provider: string;
  modelId: string;
  supportedUrls: unknown;
  doGenerate(params: CallParams): PromiseLike<{ content: readonly object[]; usage: unknown }>;
  doStream(params: CallParams): PromiseLike<{ stream: ReadableStream<object> }>;
}

/**
 * Names the calls that a wrapped model belongs to. The AI SDK puts a model with an older interface into a proxy, which
 * passes the property on but is another object.
 */
const OWNER = Symbol("palimpsest");

/** The calls of a language model in a session. */
export class ContextCalls {
  readonly #session: Session;
  readonly #options: ContextOptions;
  readonly #responses = new Responses();

  constructor(session: Session, options: ContextOptions = {}) {
    this.#session = session;
    this.#options = options;
  }

  /** Returns the model with synced prompts. Its interface keeps its version. A wrapped model stays as it is. */
  wrap<Model extends SdkModel>(model: Model): Model {
    if ((model as { [OWNER]?: ContextCalls })[OWNER] === this) return model;
    const { specificationVersion, provider, modelId, supportedUrls } = model;
    const wrapped: SdkModel & { [OWNER]: ContextCalls } = {
      [OWNER]: this,
      specificationVersion,
      provider,
      modelId,
      supportedUrls,
      doGenerate: (given) => this.generate(modelId, given, (params) => model.doGenerate(params)),
      doStream: (given) => this.stream(modelId, given, (params) => model.doStream(params)),
    };
    return wrapped as SdkModel as Model;
  }

  /** Sends a call whose response is complete. */
  async generate<Params extends CallParams, Result extends { content: readonly object[]; usage: unknown }>(
    model: string,
    params: Params,
    send: (params: Params) => PromiseLike<Result>,
  ): Promise<Result> {
    const { result, view } = await this.#send(model, params, send);
    for (const part of result.content) this.#assign(view, part);
    this.#responses.record(model, result.content, result.usage);
    return result;
  }

  /** Sends a call whose response is a stream. */
  async stream<
    Params extends CallParams,
    Chunk extends object,
    Result extends { stream: ReadableStream<Chunk> },
  >(model: string, params: Params, send: (params: Params) => PromiseLike<Result>): Promise<Result> {
    const begin = async (synced: Params): Promise<Result> => {
      const result = await send(synced);
      return { ...result, stream: await begun(result.stream) };
    };
    const { result, view } = await this.#send(model, params, begin);
    const stream = this.#responses.recording(model, result.stream, (part) => this.#assign(view, part));
    return { ...result, stream };
  }

  /** Syncs the prompt and sends the call. A prompt that is too long is sent again once, shorter. */
  async #send<Params extends CallParams, Result>(
    model: string,
    params: Params,
    send: (params: Params) => PromiseLike<Result>,
  ): Promise<{ result: Result; view: SdkView<SdkMessage> }> {
    const { synced, view } = await this.#synced(model, params);
    try {
      return { result: await send(synced), view };
    } catch (tooLong) {
      if (!isTooLong(tooLong)) throw tooLong;
      const shorter = await shortened(tooLong, () => this.#synced(model, params, tooLong));
      return { result: await send(shorter.synced), view: shorter.view };
    }
  }

  /** Lets a call in a response read the session that took the prompt. */
  #assign(view: SdkView<SdkMessage>, part: object): void {
    const { type, toolCallId } = part as { type?: string; toolCallId?: string };
    if (type === "tool-call" && toolCallId) this.#session.assignCalls(view, [toolCallId]);
  }

  async #synced<Params extends CallParams>(
    model: string,
    params: Params,
    tooLong?: unknown,
  ): Promise<{ synced: Params; view: SdkView<SdkMessage> }> {
    const tools = (params.tools as Definition[] | undefined)?.flatMap(({ type, inputSchema, ...tool }) =>
      type === "function"
        ? [{ name: tool.name, description: tool.description, input_schema: inputSchema }]
        : [],
    );
    const { prompt, abortSignal, maxOutputTokens } = params;
    const { target, ...options } = this.#options;
    const signal = anyOf(abortSignal, options.signal);
    const output = maxOutputTokens === undefined ? {} : { max_output_tokens: maxOutputTokens };
    const sync = { model, tools, ...options, signal, tooLong, target: { ...output, ...target } };
    const view = await syncMessages(this.#session, prompt, sync, this.#responses);
    const reason = view.notSendableReason;
    // A provider can accept a response to continue.
    if (reason && reason !== "ends_with_assistant") throw new NotSendableError(reason);
    return { synced: { ...params, prompt: view.messages }, view };
  }
}

/** The parts of a stream that precede its content. */
const OPENING: unknown[] = ["stream-start", "response-metadata", "raw"];

/**
 * Returns a stream whose content has begun. Some providers report a prompt that is too long in the stream, before its
 * content. The function throws this error.
 */
async function begun<Chunk extends object>(stream: ReadableStream<Chunk>): Promise<ReadableStream<Chunk>> {
  const reader = stream.getReader();
  const opening: ReadableStreamReadResult<Chunk>[] = [];
  for (let opens = true; opens; ) {
    const read = await reader.read();
    const { type, error } = (read.value ?? {}) as { type?: string; error?: unknown };
    if (type === "error" && isTooLong(error)) {
      await reader.cancel();
      throw error;
    }
    opening.push(read);
    opens = OPENING.includes(type);
  }
  return new ReadableStream<Chunk>(
    {
      async pull(controller) {
        const { done, value } = opening.shift() ?? (await reader.read());
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    // The stream reads ahead no further than the one that it continues.
    { highWaterMark: 0 },
  );
}

/** A tool definition of the AI SDK. Tools that the provider runs have no schema. */
interface Definition {
  type: string;
  name: string;
  description?: string;
  inputSchema?: unknown;
}
