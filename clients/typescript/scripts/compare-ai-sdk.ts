// Compares the variants of an agent of the AI SDK:
//
// - `none`: the agent sends its whole conversation.
// - `pruneMessages`: `prepareStep` prunes old tool calls, as the guide "Compact Agent Context" of the AI SDK does.
// - `session`: the model has the middleware, and the tools contain those of the service.
// - `session, 100,000`: the same with the limit of `pruneMessages` as the input limit of the model.

import {
  generateText,
  isStepCount,
  type ModelMessage,
  type PrepareStepFunction,
  pruneMessages,
  type ToolSet,
  tool,
  wrapLanguageModel,
} from "ai";
import { contextMiddleware, contextTools } from "palimpsest/ai-sdk";
import { z } from "zod";
import {
  compare,
  INSTRUCTIONS,
  LIMIT_TOKENS,
  MAX_OUTPUT_TOKENS,
  PROMPT,
  PROVIDER_OPTIONS,
  ROUNDS,
  type World,
} from "./measure.js";

const estimateTokens = (messages: ModelMessage[]) => JSON.stringify(messages).length / 4;

const prune: PrepareStepFunction<ToolSet> = ({ messages }) => {
  if (estimateTokens(messages) <= LIMIT_TOKENS) return undefined;
  const options = { reasoning: "all", toolCalls: "before-last-3-messages", emptyMessages: "remove" } as const;
  return { messages: pruneMessages({ messages, ...options }) };
};

async function run(
  { model, bash }: Pick<World, "model" | "bash">,
  settings: { tools?: ToolSet; prepareStep?: PrepareStepFunction<ToolSet> } = {},
): Promise<unknown> {
  const inputSchema = z.object({ command: z.string() });
  const shell = tool({ description: "Runs a command.", inputSchema, execute: bash });
  const tools: ToolSet = { bash: shell, ...settings.tools };
  return generateText({
    ...settings,
    model,
    tools,
    instructions: INSTRUCTIONS,
    prompt: PROMPT,
    stopWhen: isStepCount(ROUNDS + 10),
    maxOutputTokens: MAX_OUTPUT_TOKENS,
    maxRetries: 0,
    providerOptions: PROVIDER_OPTIONS,
  });
}

async function inSession({ model, session, bash }: World, target = {}): Promise<unknown> {
  const middleware = contextMiddleware(session, { target });
  return run(
    { model: wrapLanguageModel({ model, middleware }), bash },
    { tools: await contextTools(session) },
  );
}

await compare({
  none: (world) => run(world),
  pruneMessages: (world) => run(world, { prepareStep: prune }),
  session: (world) => inSession(world),
  "session, 100,000": (world) => inSession(world, { input_limit_tokens: LIMIT_TOKENS }),
});
