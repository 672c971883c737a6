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
import { ContextCalls } from "./ai-sdk-calls.js";
import { type SdkOptions, type SdkView, syncMessages } from "./ai-sdk-sync.js";
import type { Session } from "./session.js";

export type { SdkOptions, SdkView } from "./ai-sdk-sync.js";

/** Sends the whole conversation and returns the messages for the model. */
export function syncModelMessages(
  session: Session,
  messages: readonly ModelMessage[],
  options: SdkOptions = {},
): Promise<SdkView<ModelMessage>> {
  return syncMessages(session, messages, options);
}

/** Sends the whole conversation of a chat and returns the messages for the model. */
export async function syncUIMessages(
  session: Session,
  messages: readonly UIMessage[],
  options: SdkOptions = {},
): Promise<SdkView<ModelMessage>> {
  // Some versions of the AI SDK return a promise, others the messages.
  const converted = await convertToModelMessages(messages.map((message) => ({ ...message })));
  return syncMessages(session, converted, options);
}

/**
 * Returns a value for `prepareStep` of `generateText`, `streamText` and agents. It syncs the messages of each step. The AI
 * SDK does not pass its `abortSignal` to the function: set it as `signal` too, or an aborted run does not end its sync.
 */
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

/**
 * Returns a middleware that syncs the prompt of each call of a language model. A prompt that is too long is sent again
 * once, shorter.
 */
export function contextMiddleware(session: Session, options: SdkOptions = {}): LanguageModelMiddleware {
  const calls = new ContextCalls(session, options);
  return {
    specificationVersion: "v3",
    wrapGenerate: ({ params, model }) =>
      calls.generate(model.modelId, params, (synced) => model.doGenerate(synced)),
    wrapStream: ({ params, model }) =>
      calls.stream(model.modelId, params, (synced) => model.doStream(synced)),
  };
}

/** The part of the options of an execution that the tools use. */
interface ExecutionContext {
  toolCallId: string;
  abortSignal?: AbortSignal;
}

/** Returns the service's tools, with which the model reads removed content. Add them to `tools` of the call. */
export async function contextTools(session: Session): Promise<Record<string, Tool>> {
  const definitions = await session.toolDefinitions("anthropic_messages");
  const entries = definitions.map(({ name, description, input_schema }) => {
    const execute = async (input: unknown, context: ExecutionContext): Promise<string> => {
      const { toolCallId: id, abortSignal: signal } = context;
      const result = await session.runTool({ type: "tool_use" as const, id, name, input }, { signal });
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
