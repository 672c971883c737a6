// The AI SDK: a middleware, a function for `prepareStep`, tools, and conversions.

import {
  convertToModelMessages,
  jsonSchema,
  type LanguageModelMiddleware,
  type ModelMessage,
  type PrepareStepFunction,
  type Tool,
  tool,
  type UIMessage,
} from "ai";
import { Conversation, type SdkMessage } from "./ai-sdk-messages.js";
import { Responses } from "./ai-sdk-responses.js";
import type { Session, SyncOptions } from "./session.js";
import { isTooLong } from "./too-long.js";
import { NotSendableError, type View } from "./view.js";

/** Options of a sync of the AI SDK. */
export interface SdkOptions extends Omit<SyncOptions, "format" | "lastResponse"> {
  /** The name of the model. */
  model?: string | undefined;
  /** Definitions of tools, whose tokens are counted. */
  tools?: readonly object[] | undefined;
}

/** The messages for the model, and the state of the view. */
export interface SdkView<Message> extends Omit<View, "request" | "messages"> {
  messages: Message[];
}

/** Sends the whole conversation and returns the messages for the model. */
export function syncModelMessages(
  session: Session,
  messages: readonly ModelMessage[],
  options: SdkOptions = {},
): Promise<SdkView<ModelMessage>> {
  return sync(session, messages, options);
}

/** Sends the whole conversation of a chat and returns the messages for the model. */
export async function syncUIMessages(
  session: Session,
  messages: readonly UIMessage[],
  options: SdkOptions = {},
): Promise<SdkView<ModelMessage>> {
  // Some versions of the AI SDK return a promise, others the messages.
  const converted = await convertToModelMessages(messages.map((message) => ({ ...message })));
  return sync(session, converted, options);
}

/** Returns a value for `prepareStep` of `generateText`, `streamText` and agents. It syncs the messages of each step. */
export function contextPrepareStep(
  session: Session,
  options: SdkOptions = {},
  // biome-ignore lint/suspicious/noExplicitAny: the function fits the tools of any agent
): PrepareStepFunction<any> {
  // From version 7 on, the messages of a step begin with the view of the step before. A session needs the conversation.
  const conversations = new WeakMap<ModelMessage, { viewLength: number; messages: ModelMessage[] }>();
  const conversationOf = (messages: ModelMessage[]): ModelMessage[] => {
    for (let index = messages.length - 1; index >= 0; index--) {
      const earlier = conversations.get(messages[index] as ModelMessage);
      if (earlier?.viewLength === index + 1) return [...earlier.messages, ...messages.slice(index + 1)];
    }
    return messages;
  };
  return async ({ messages, model }) => {
    const name = typeof model === "string" ? model.split("/").at(-1) : model.modelId;
    const conversation = conversationOf(messages);
    const tools = await toolsOf(session);
    const view = await syncModelMessages(session, conversation, { model: name, tools, ...options });
    const last = view.messages.at(-1);
    if (last) conversations.set(last, { viewLength: view.messages.length, messages: conversation });
    return { messages: view.messages };
  };
}

type Params = Parameters<NonNullable<LanguageModelMiddleware["transformParams"]>>[0]["params"];

/**
 * Returns a middleware that syncs the prompt of each call of a language model. A prompt that is too long is sent again
 * once, shorter.
 */
export function contextMiddleware(session: Session, options: SdkOptions = {}): LanguageModelMiddleware {
  const originals = new WeakMap<Params, Params>();
  const responses = new Responses();
  const transform = async (params: Params, model: string, tooLong?: unknown): Promise<Params> => {
    const tools = params.tools?.flatMap((entry) =>
      entry.type === "function"
        ? [{ name: entry.name, description: entry.description, input_schema: entry.inputSchema }]
        : [],
    );
    const signal = params.abortSignal;
    const synced = { model, tools, signal, tooLong, ...options };
    const view = await sync(session, params.prompt, synced, responses);
    const reason = view.notSendableReason;
    if (reason && reason !== "ends_with_assistant") throw new NotSendableError(reason);
    const transformed = { ...params, prompt: view.messages };
    originals.set(transformed, params);
    return transformed;
  };
  const shorter = (params: Params, model: string, error: unknown): Promise<Params> => {
    if (!isTooLong(error)) throw error;
    return transform(originals.get(params) ?? params, model, error);
  };
  return {
    specificationVersion: "v3",
    transformParams: ({ params, model }) => transform(params, model.modelId),
    wrapGenerate: async ({ doGenerate, params, model }) => {
      const retry = async (error: unknown) => model.doGenerate(await shorter(params, model.modelId, error));
      const result = await Promise.resolve(doGenerate()).catch(retry);
      responses.record(model.modelId, result.content, result.usage);
      return result;
    },
    wrapStream: async ({ doStream, params, model }) => {
      const retry = async (error: unknown) => model.doStream(await shorter(params, model.modelId, error));
      const result = await Promise.resolve(doStream()).catch(retry);
      return { ...result, stream: responses.recording(model.modelId, result.stream) };
    },
  };
}

/** Returns the service's tools, with which the model reads removed content. Add them to `tools` of the call. */
export async function contextTools(session: Session): Promise<Record<string, Tool>> {
  const definitions = await session.toolDefinitions("anthropic_messages");
  const entries = definitions.map(({ name, description, input_schema }) => {
    const execute = async (input: unknown, { toolCallId: id }: { toolCallId: string }): Promise<string> => {
      const result = await session.runTool({ type: "tool_use" as const, id, name, input });
      if (result.is_error) throw new Error(result.content);
      return result.content;
    };
    return [name, tool({ description, inputSchema: jsonSchema(input_schema), execute })] as const;
  });
  return Object.fromEntries(entries);
}

/** Returns the definitions of the service's tools in Anthropic's format. */
async function toolsOf(session: Session): Promise<object[]> {
  return (await session.toolDefinitions("anthropic_messages")).map((tool) => tool.definition);
}

async function sync<Message extends SdkMessage>(
  session: Session,
  messages: readonly Message[],
  { model, tools, target, ...options }: SdkOptions,
  responses?: Responses,
): Promise<SdkView<Message>> {
  const conversation = new Conversation(messages);
  const body = { model, system: conversation.system, tools: tools ?? [], messages: conversation.messages };
  const view = await session.sync(body, {
    ...options,
    format: "anthropic_messages",
    lastResponse: responses?.lastOf(conversation.messages),
    // The provider of the model decides whether it sends reasoning.
    target: { thinking: true, ...target },
  });
  const restored = conversation.restore(view.messages, view.reply.system);
  return { ...view, messages: restored as Message[] };
}
