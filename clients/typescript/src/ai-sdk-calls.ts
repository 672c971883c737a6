// Calls of a language model of the AI SDK, whose prompts are synced. The module does not load the AI SDK.

import type { SdkMessage } from "./ai-sdk-messages.js";
import { Responses } from "./ai-sdk-responses.js";
import { type SdkOptions, syncMessages } from "./ai-sdk-sync.js";
import type { Session } from "./session.js";
import { isTooLong } from "./too-long.js";
import { NotSendableError } from "./view.js";

/** The parameters of a call that a sync reads. */
interface CallParams {
  prompt: readonly SdkMessage[];
  tools?: readonly { type: string }[] | undefined;
  maxOutputTokens?: number | undefined;
  abortSignal?: AbortSignal | undefined;
}

/** The calls of a language model in a session. */
export class ContextCalls {
  readonly #session: Session;
  readonly #options: SdkOptions;
  readonly #responses = new Responses();

  constructor(session: Session, options: SdkOptions = {}) {
    this.#session = session;
    this.#options = options;
  }

  /** Sends a call whose response is complete. */
  async generate<Params extends CallParams, Result extends { content: readonly object[]; usage: unknown }>(
    model: string,
    params: Params,
    send: (params: Params) => PromiseLike<Result>,
  ): Promise<Result> {
    const result = await this.#send(model, params, send);
    this.#responses.record(model, result.content, result.usage);
    return result;
  }

  /** Sends a call whose response is a stream. */
  async stream<
    Params extends CallParams,
    Chunk extends object,
    Result extends { stream: ReadableStream<Chunk> },
  >(model: string, params: Params, send: (params: Params) => PromiseLike<Result>): Promise<Result> {
    const result = await this.#send(model, params, send);
    return { ...result, stream: this.#responses.recording(model, result.stream) };
  }

  /** Syncs the prompt and sends the call. A prompt that is too long is sent again once, shorter. */
  async #send<Params extends CallParams, Result>(
    model: string,
    params: Params,
    send: (params: Params) => PromiseLike<Result>,
  ): Promise<Result> {
    const synced = await this.#synced(model, params);
    try {
      return await send(synced);
    } catch (tooLong) {
      if (!isTooLong(tooLong)) throw tooLong;
      return send(await this.#synced(model, params, tooLong));
    }
  }

  async #synced<Params extends CallParams>(
    model: string,
    params: Params,
    tooLong?: unknown,
  ): Promise<Params> {
    const tools = (params.tools as Definition[] | undefined)?.flatMap(({ type, inputSchema, ...tool }) =>
      type === "function"
        ? [{ name: tool.name, description: tool.description, input_schema: inputSchema }]
        : [],
    );
    const { prompt, abortSignal: signal, maxOutputTokens } = params;
    const { target, ...options } = this.#options;
    const output = maxOutputTokens === undefined ? {} : { max_output_tokens: maxOutputTokens };
    const synced = { model, tools, signal, tooLong, ...options, target: { ...output, ...target } };
    const view = await syncMessages(this.#session, prompt, synced as SdkOptions, this.#responses);
    const reason = view.notSendableReason;
    // A provider can accept a response to continue.
    if (reason && reason !== "ends_with_assistant") throw new NotSendableError(reason);
    return { ...params, prompt: view.messages };
  }
}

/** A tool definition of the AI SDK. Tools that the provider runs have no schema. */
interface Definition {
  type: string;
  name: string;
  description?: string;
  inputSchema?: unknown;
}
