// Compares the variants of an agent of the AI SDK:
//
// - `none`: the agent sends its whole conversation.
// - `pruneMessages`: `prepareStep` prunes old tool calls, as the guide "Compact Agent Context" of the AI SDK does.
// - `session`: the agent has the settings of `withSession`.
// - `session, 100,000`: the same with the limit of `pruneMessages` as the input limit of the model.

import {
  generateText,
  isStepCount,
  type LanguageModel,
  type ModelMessage,
  type PrepareStepFunction,
  pruneMessages,
  type ToolSet,
  tool,
} from "ai";
import { withSession } from "palimpsest/ai-sdk";
import { z } from "zod";
import {
  compare,
  INSTRUCTIONS,
  LIMIT_TOKENS,
  MAX_OUTPUT_TOKENS,
  PROMPT,
  PROVIDER_OPTIONS,
  ROUNDS,
  SESSION,
  type World,
} from "./measure.js";

const estimateTokens = (messages: ModelMessage[]) => JSON.stringify(messages).length / 4;

const prune: PrepareStepFunction<ToolSet> = ({ messages }) => {
  if (estimateTokens(messages) <= LIMIT_TOKENS) return undefined;
  const options = { reasoning: "all", toolCalls: "before-last-3-messages", emptyMessages: "remove" } as const;
  return { messages: pruneMessages({ messages, ...options }) };
};

interface Settings {
  model: LanguageModel;
  tools: ToolSet;
  prepareStep?: PrepareStepFunction<ToolSet>;
}

function settingsOf({ model, bash }: World): Settings {
  const inputSchema = z.object({ command: z.string() });
  return { model, tools: { bash: tool({ description: "Runs a command.", inputSchema, execute: bash }) } };
}

async function run(settings: Settings): Promise<unknown> {
  return generateText({
    ...settings,
    instructions: INSTRUCTIONS,
    prompt: PROMPT,
    stopWhen: isStepCount(ROUNDS + 10),
    maxOutputTokens: MAX_OUTPUT_TOKENS,
    maxRetries: 0,
    providerOptions: PROVIDER_OPTIONS,
  });
}

async function inSession(world: World, target = {}): Promise<unknown> {
  return run(await withSession(...SESSION, settingsOf(world), { client: world.client, target }));
}

await compare({
  none: (world) => run(settingsOf(world)),
  pruneMessages: (world) => run({ ...settingsOf(world), prepareStep: prune }),
  session: (world) => inSession(world),
  "session, 100,000": (world) => inSession(world, { input_limit_tokens: LIMIT_TOKENS }),
});
