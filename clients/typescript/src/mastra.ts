// Mastra: an input processor for agents.

import { parseMemoryRequestContext } from "@mastra/core/memory";
import type { ProcessInputStepArgs, ProcessInputStepResult } from "@mastra/core/processors";
import { createTool } from "@mastra/core/tools";
import { ContextCalls, type SdkModel } from "./ai-sdk-calls.js";
import type { ContextOptions, SessionOptions } from "./ai-sdk-sync.js";
import { Palimpsest } from "./client.js";
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
  { client = new Palimpsest(), ...options }: SessionOptions = {},
): ContextProcessor {
  return {
    id: "palimpsest",
    async processInputStep({ model, tools, requestContext, state }) {
      // The steps of a run share their state, so that the usage of a step makes the count of the next one exact.
      state.palimpsest ??= runOf(client.session(project, nameOf(session, requestContext)), options);
      const run = state.palimpsest as Run;
      // The type of the model leaves out the content of a response.
      const synced = run.calls.wrap(model as Model & SdkModel);
      return { model: synced, tools: { ...tools, ...(await run.tools) } };
    },
  };
}

/** The calls of one run of an agent. */
interface Run {
  calls: ContextCalls;
  tools: Promise<Tools>;
}

function runOf(session: Session, options: ContextOptions): Run {
  return { calls: new ContextCalls(session, options), tools: toolsOf(session) };
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
