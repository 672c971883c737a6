// Mastra: an input processor for agents.

import { parseMemoryRequestContext } from "@mastra/core/memory";
import type { ProcessInputStepArgs, ProcessInputStepResult } from "@mastra/core/processors";
import { createTool } from "@mastra/core/tools";
import { ContextCalls, type SdkModel } from "./ai-sdk-calls.js";
import type { ContextOptions, SessionOptions } from "./ai-sdk-sync.js";
import { defaultClient } from "./client.js";
import { anyOf, type CallOptions } from "./http.js";
import type { Session } from "./session.js";

export type { SessionOptions } from "./ai-sdk-sync.js";

/** The name of a session, or a function that returns the name for a thread of the agent's memory. */
export type SessionName = string | ((threadId: string) => string);

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
export function contextProcessor(
  project: string,
  session: SessionName,
  { client = defaultClient(), readBack = true, ...options }: SessionOptions = {},
): ContextProcessor {
  return {
    id: "palimpsest",
    async processInputStep({ model, tools, requestContext, state, abortSignal }) {
      // The steps of a run share their state, so that the usage of a step makes the count of the next one exact.
      state.palimpsest ??= runOf(client.session(project, nameOf(session, requestContext)), options);
      const run = state.palimpsest as Run;
      if (readBack && !run.tools) {
        const signal = anyOf(abortSignal, options.signal);
        run.tools = await toolsOf(run.session, { timeoutMs: options.timeoutMs, signal });
      }
      // The type of the model leaves out the content of a response.
      const synced = run.calls.wrap(model as Model & SdkModel);
      return { model: synced, tools: { ...tools, ...run.tools } };
    },
  };
}

/** One run of an agent. */
interface Run {
  session: Session;
  calls: ContextCalls;
  tools?: Tools;
}

function runOf(session: Session, options: ContextOptions): Run {
  return { session, calls: new ContextCalls(session, options) };
}

function nameOf(session: SessionName, context: ProcessInputStepArgs["requestContext"]): string {
  if (typeof session === "string") return session;
  const threadId = parseMemoryRequestContext(context)?.thread?.id;
  if (!threadId)
    throw new Error(
      "The agent runs without a thread of its memory. Pass the name of a session instead of a function.",
    );
  return session(threadId);
}

/** The part of the context of an execution that the tools use. */
interface ExecutionContext {
  agent?: { toolCallId: string };
  abortSignal?: AbortSignal;
}

/** Returns the service's tools, with which the model reads removed content. */
async function toolsOf(session: Session, options: CallOptions): Promise<Tools> {
  const definitions = await session.toolDefinitions("anthropic_messages", options);
  const entries = definitions.map(({ name, description, input_schema }) => {
    const execute = async (input: unknown, context: ExecutionContext): Promise<string> => {
      const call = { type: "tool_use" as const, id: context.agent?.toolCallId ?? name, name, input };
      const signal = anyOf(context.abortSignal, options.signal);
      const result = await session.runTool(call, { timeoutMs: options.timeoutMs, signal });
      if (result.is_error) throw new Error(result.content);
      return result.content;
    };
    return [name, createTool({ id: name, description, inputSchema: input_schema, execute })] as const;
  });
  return Object.fromEntries(entries);
}
