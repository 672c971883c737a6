// Compares the variants of an agent of Mastra:
//
// - `none`: the agent sends its whole conversation.
// - `TokenLimiter`: a `TokenLimiterProcessor` removes the oldest messages above 100,000 tokens.
// - `session`: the agent has the processor of the package.
// - `session, 100,000`: the same with the limit of `TokenLimiter` as the input limit of the model.

import { Agent, type AgentConfig } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { TokenLimiterProcessor } from "@mastra/core/processors";
import { createTool } from "@mastra/core/tools";
import { contextProcessor } from "palimpsest/mastra";
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

async function run(
  { model, bash }: World,
  inputProcessors: NonNullable<AgentConfig["inputProcessors"]> = [],
): Promise<unknown> {
  const shell = createTool({
    id: "bash",
    description: "Runs a command.",
    inputSchema: z.object({ command: z.string() }),
    execute: async (input) => ({ output: await bash(input) }),
  });
  const agent = new Agent({
    id: "builder",
    name: "Builder",
    instructions: INSTRUCTIONS,
    model,
    tools: { bash: shell },
    inputProcessors,
  });
  new Mastra({ agents: { builder: agent }, logger: false });
  return agent.generate(PROMPT, {
    maxSteps: ROUNDS + 10,
    modelSettings: { maxOutputTokens: MAX_OUTPUT_TOKENS, maxRetries: 0 },
    providerOptions: PROVIDER_OPTIONS,
  });
}

const inSession = (world: World, target = {}) =>
  run(world, [contextProcessor(...SESSION, { client: world.client, target })]);

await compare({
  none: (world) => run(world),
  TokenLimiter: (world) => run(world, [new TokenLimiterProcessor(LIMIT_TOKENS)]),
  session: (world) => inSession(world),
  "session, 100,000": (world) => inSession(world, { input_limit_tokens: LIMIT_TOKENS }),
});
