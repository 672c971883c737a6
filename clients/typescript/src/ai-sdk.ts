// The AI SDK: a function for the settings of a call, and its parts: a middleware, a function for `prepareStep`, tools, and
// conversions.

import {
  convertToModelMessages,
  dynamicTool,
  gateway,
  jsonSchema,
  type LanguageModel,
  type LanguageModelMiddleware,
  type ModelMessage,
  type PrepareStepFunction,
  type Tool,
  type ToolChoice,
  type ToolSet,
  type UIMessage,
} from "ai";
import { ContextCalls } from "./ai-sdk-calls.js";
import {
  type ContextOptions,
  type SdkOptions,
  type SdkView,
  type SessionOptions,
  syncMessages,
} from "./ai-sdk-sync.js";
import { defaultClient } from "./client.js";
import { anyOf, type CallOptions } from "./http.js";
import type { Session } from "./session.js";

export type { ContextOptions, SdkOptions, SdkView, SessionOptions } from "./ai-sdk-sync.js";

/** The settings of a call that `withSession` reads. */
export interface ModelSettings<Tools extends ToolSet = ToolSet> {
  model: LanguageModel;
  tools?: Tools | undefined;
}

/** The settings whose values depend on the tools. They give literals and parameters of functions their types. */
export interface ToolSettings<Tools extends ToolSet> {
  activeTools?: readonly (keyof NoInfer<Tools> & string)[] | undefined;
  toolChoice?: ToolChoice<NoInfer<Tools>> | undefined;
  prepareStep?: PrepareSteps<NoInfer<Tools>> | undefined;
}

/** A function for `prepareStep`. Parameters of a method are bivariant, so it can have the type of any context of a run. */
type PrepareSteps<Tools extends ToolSet> = {
  prepareStep(
    step: Parameters<PrepareStepFunction<Tools>>[0],
  ): PromiseLike<StepResult<Tools>> | StepResult<Tools>;
}["prepareStep"];

type SdkStepResult<Tools extends ToolSet> = NonNullable<Awaited<ReturnType<PrepareStepFunction<Tools>>>>;

/** The result of `prepareStep`. The type of `model` has many names, and its union with the given type is too complex. */
type StepResult<Tools extends ToolSet> =
  | { [Name in keyof SdkStepResult<Tools>]?: Name extends "model" ? unknown : SdkStepResult<Tools>[Name] }
  | undefined;

/** The given settings with a model whose prompts are synced. */
export type SessionSettings<Settings extends ModelSettings> = Omit<Settings, "model"> & {
  model: LanguageModel;
};

/** The settings that a step can replace. */
interface StepSettings {
  model?: LanguageModel;
  activeTools?: readonly string[];
}

type PrepareStep = (step: object) => Promise<StepSettings | undefined>;

/** The settings of a call, with types that are independent of its tools. */
interface CallSettings extends StepSettings {
  tools?: ToolSet;
  prepareStep?: PrepareStep;
  abortSignal?: AbortSignal;
}

/**
 * Returns settings of `generateText`, `streamText` or an agent with a model that syncs its prompts, and with the service's
 * tools. `prepareStep` and `activeTools` are adapted if they are among the settings. All settings keep their types, because
 * calls of the service's tools are dynamic. In `prepareCall` of an agent, each call can have its own session.
 */
export async function withSession<Settings extends ModelSettings, Tools extends ToolSet = ToolSet>(
  project: string,
  session: string,
  settings: Settings & ModelSettings<Tools> & ToolSettings<Tools>,
  { client = defaultClient(), readBack = true, ...options }: SessionOptions = {},
): Promise<SessionSettings<Settings>> {
  const opened = client.session(project, session);
  const calls = new ContextCalls(opened, options);
  const given = settings as unknown as CallSettings;
  const { prepareStep, abortSignal } = given;
  const signal = anyOf(abortSignal, options.signal);
  const serviceTools = readBack ? await contextTools(opened, { timeoutMs: options.timeoutMs, signal }) : {};
  const names = Object.keys(serviceTools);
  const taken = names.find((name) => given.tools?.[name]);
  if (taken) throw new Error(`The tool ${taken} has the name of a tool of the service. Rename it.`);
  const inSession = <Step extends StepSettings>(step: Step): Step => ({
    ...step,
    ...(step.model ? { model: calls.wrap(resolved(step.model)) } : {}),
    // An empty list stays empty: the step has no tools.
    ...(step.activeTools?.length ? { activeTools: [...step.activeTools, ...names] } : {}),
  });
  // A step with another model or other tools belongs to the session too.
  const prepareInSession: PrepareStep = async (step) => {
    const prepared = await prepareStep?.(step);
    return prepared && inSession(prepared);
  };
  const changed = {
    ...inSession(given),
    tools: { ...given.tools, ...serviceTools },
    ...(prepareStep ? { prepareStep: prepareInSession } : {}),
  };
  return changed as unknown as SessionSettings<Settings>;
}

/** Returns the model with a name, as the AI SDK selects it. */
function resolved(model: LanguageModel): Exclude<LanguageModel, string> {
  if (typeof model !== "string") return model;
  return (globalThis.AI_SDK_DEFAULT_PROVIDER ?? gateway).languageModel(model);
}

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
  options: ContextOptions = {},
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
    const tools = await toolsOf(session, options);
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
export function contextMiddleware(session: Session, options: ContextOptions = {}): LanguageModelMiddleware {
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

/**
 * Returns the service's tools, with which the model reads removed content. Add them to `tools` of the call. Their calls are
 * dynamic. The options hold for the request of the definitions, and for each call.
 */
export async function contextTools(
  session: Session,
  options: CallOptions = {},
): Promise<Record<string, Tool>> {
  const { timeoutMs, signal } = options;
  const definitions = await session.toolDefinitions("anthropic_messages", options);
  const entries = definitions.map(({ name, description, input_schema }) => {
    const execute = async (input: unknown, context: ExecutionContext): Promise<string> => {
      const call = { type: "tool_use" as const, id: context.toolCallId, name, input };
      const either = anyOf(context.abortSignal, signal);
      const result = await session.runTool(call, { timeoutMs, signal: either });
      if (result.is_error) throw new Error(result.content);
      return result.content;
    };
    return [name, dynamicTool({ description, inputSchema: jsonSchema(input_schema), execute })] as const;
  });
  return Object.fromEntries(entries);
}

/** Returns the definitions of the service's tools in Anthropic's format. */
async function toolsOf(session: Session, { timeoutMs, signal }: CallOptions): Promise<object[]> {
  const definitions = await session.toolDefinitions("anthropic_messages", { timeoutMs, signal });
  return definitions.map((tool) => tool.definition);
}
