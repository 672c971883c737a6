// Mastra: an input processor for agents.

import { parseMemoryRequestContext } from "@mastra/core/memory";
import type { ProcessInputStepArgs, ProcessInputStepResult } from "@mastra/core/processors";
import { createTool } from "@mastra/core/tools";
import { ContextCalls } from "./ai-sdk-calls.js";
import type { SdkOptions } from "./ai-sdk-sync.js";
import type { Session } from "./session.js";

/** A session, or a function that returns the session of a thread of the agent's memory. */
export type SessionOfThread = Session | ((threadId: string) => Session);

type Model = ProcessInputStepArgs["model"];
type Tools = NonNullable<ProcessInputStepArgs["tools"]>;

/** The input processor, a `Processor` of Mastra. */
export interface ContextProcessor {
  readonly id: "palimpsest";
  processInputStep(args: ProcessInputStepArgs): Promise<ProcessInputStepResult>;
}

/**
 * Returns an input processor that syncs the prompt of each call of the agent's model, and adds the service's tools. Put it
 * at the end of `inputProcessors`.
 */
export function contextProcessor(session: SessionOfThread, options: SdkOptions = {}): ContextProcessor {
  return {
    id: "palimpsest",
    async processInputStep({ model, tools, requestContext, state }) {
      // The steps of a run share their state, so that the usage of a step makes the count of the next one exact.
      state.palimpsest ??= runOf(sessionOf(session, requestContext), options);
      const run = state.palimpsest as Run;
      return { model: synced(model, run.calls), tools: { ...tools, ...(await run.tools) } };
    },
  };
}

/** The calls of one run of an agent. */
interface Run {
  calls: ContextCalls;
  tools: Promise<Tools>;
}

function runOf(session: Session, options: SdkOptions): Run {
  return { calls: new ContextCalls(session, options), tools: toolsOf(session) };
}

function sessionOf(session: SessionOfThread, context: ProcessInputStepArgs["requestContext"]): Session {
  if (typeof session !== "function") return session;
  const threadId = parseMemoryRequestContext(context)?.thread?.id;
  if (!threadId)
    throw new Error("The agent runs without a thread of its memory. Pass a session instead of a function.");
  return session(threadId);
}

/** Returns the model with synced prompts. */
function synced(model: Model, calls: ContextCalls): Model {
  const { specificationVersion, provider, modelId, supportedUrls } = model;
  // The versions of the interface differ in types that no sync reads.
  const { doGenerate, doStream } = model as Extract<Model, { specificationVersion: "v3" }>;
  type Params = Parameters<typeof doStream>[0];
  // The type leaves out the content, from which Mastra makes its stream.
  type Generate = (params: Params) => PromiseLike<StreamResult & { content: object[]; usage: unknown }>;
  type StreamResult = Awaited<ReturnType<typeof doGenerate>>;
  const generate = doGenerate as Generate;
  const wrapped = {
    specificationVersion,
    provider,
    modelId,
    supportedUrls,
    doGenerate: (given: Params) => calls.generate(modelId, given, (params) => generate.call(model, params)),
    doStream: (given: Params) => calls.stream(modelId, given, (params) => doStream.call(model, params)),
  };
  return wrapped as Model;
}

/** The part of the context of an execution that the tools use. */
interface ExecutionContext {
  agent?: { toolCallId: string };
  abortSignal?: AbortSignal;
}

/** Returns the service's tools, with which the model reads removed content. */
async function toolsOf(session: Session): Promise<Tools> {
  const definitions = await session.toolDefinitions("anthropic_messages");
  const entries = definitions.map(({ name, description, input_schema }) => {
    const execute = async (input: unknown, context: ExecutionContext): Promise<string> => {
      const id = context.agent?.toolCallId ?? name;
      const signal = context.abortSignal;
      const result = await session.runTool({ type: "tool_use" as const, id, name, input }, { signal });
      if (result.is_error) throw new Error(result.content);
      return result.content;
    };
    return [name, createTool({ id: name, description, inputSchema: input_schema, execute })] as const;
  });
  return Object.fromEntries(entries);
}
