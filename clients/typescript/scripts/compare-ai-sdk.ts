// Runs the same task of an agent of the AI SDK in four variants, and prints the bills of the provider:
//
// - `none`: the agent sends its whole conversation.
// - `pruneMessages`: `prepareStep` prunes old tool calls, as the guide "Compact Agent Context" of the AI SDK does.
// - `palimpsest`: the model has the middleware, and the tools contain those of the service.
// - `palimpsest, limit`: the same with the limit of `pruneMessages` as the input limit of the model.
//
// The model calls a shell in each round, and answers after ROUNDS rounds (default 400). The provider counts the tokens of
// each request, bills its cache, and rejects a request that exceeds the window of the model. ONLY selects a variant.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import {
  generateText,
  isStepCount,
  type LanguageModel,
  type ModelMessage,
  type PrepareStepFunction,
  pruneMessages,
  type ToolSet,
  tool,
  wrapLanguageModel,
} from "ai";
import { Palimpsest } from "palimpsest";
import { contextMiddleware, contextTools } from "palimpsest/ai-sdk";
import { z } from "zod";
import { startProvider, startServer } from "../test/world.js";

const ROUNDS = Number(process.env.ROUNDS ?? 400);
const OUTPUT_BYTES = [2_000, 40_000];
const COMPACT_AFTER_TOKENS = 100_000;

const apis = [
  { model: "claude-sonnet-4-5", window: 200_000 },
  { model: "gpt-5", window: 272_000 },
] as const;
const variants = ["none", "pruneMessages", "palimpsest", "palimpsest, limit"] as const;

/** The part of the bill of a provider that is printed. */
interface Bill {
  input_tokens: number;
  cache_read_tokens: number;
  cache_write_5m_tokens: number;
  cost_milli: number;
}

const estimateTokens = (messages: ModelMessage[]) => JSON.stringify(messages).length / 4;

const prune: PrepareStepFunction<ToolSet> = ({ messages }) => {
  if (estimateTokens(messages) <= COMPACT_AFTER_TOKENS) return undefined;
  const options = { reasoning: "all", toolCalls: "before-last-3-messages", emptyMessages: "remove" } as const;
  return { messages: pruneMessages({ messages, ...options }) };
};

/** Runs the task and prints a row. */
async function run({ model: name, window }: (typeof apis)[number], variant: (typeof variants)[number]) {
  const provider = await startProvider();
  const server = await startServer();
  let rejected = 0;
  let last = "";
  const counting: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    if (response.status === 400) rejected++;
    else last = String(init?.body);
    return response;
  };
  try {
    const agent = { rounds: ROUNDS, output_bytes: OUTPUT_BYTES };
    await fetch(`${provider.url}/_control/script`, {
      method: "POST",
      body: JSON.stringify({ match: { model: name, tools: true }, agent, window }),
    });
    const settings = { baseURL: `${provider.url}/v1`, apiKey: "key", fetch: counting };
    const model = name.startsWith("gpt") ? createOpenAI(settings)(name) : createAnthropic(settings)(name);
    let rounds = 0;
    const bash = tool({
      description: "Runs a command.",
      inputSchema: z.object({ command: z.string() }),
      execute: async ({ command }) => {
        rounds++;
        return (await promisify(execFile)("sh", ["-c", command])).stdout;
      },
    });
    const session = new Palimpsest({ url: server.url }).session("demo", "task");
    const isAdapted = variant.startsWith("palimpsest");
    const target = variant.endsWith("limit") ? { input_limit_tokens: COMPACT_AFTER_TOKENS } : {};
    const adapted: { model: LanguageModel; tools: ToolSet; prepareStep?: PrepareStepFunction<ToolSet> } =
      isAdapted
        ? {
            model: wrapLanguageModel({ model, middleware: contextMiddleware(session, { target }) }),
            tools: { bash, ...(await contextTools(session)) },
          }
        : { model, tools: { bash }, ...(variant === "pruneMessages" ? { prepareStep: prune } : {}) };
    const outcome = await generateText({
      ...adapted,
      instructions: "You run the commands of a build, and report the failed ones.",
      prompt: "Run all rounds of the build.",
      stopWhen: isStepCount(ROUNDS + 10),
      maxOutputTokens: 16_000,
      maxRetries: 0,
      // The request is the cache breakpoint, at its last block.
      providerOptions: { anthropic: { cacheControl: { type: "ephemeral" } } },
    }).then(
      () => "finished",
      (error: Error) => error.message,
    );
    const response = await fetch(`${provider.url}/_control/bill`, { headers: { "x-api-key": "key" } });
    const bill = (await response.json()) as Bill;
    const kept = new Set(last.match(/round \d{6} line 00000001/g)).size;
    const readable = isAdapted ? await readableRounds(session) : kept;
    const thousands = (tokens: number) => Math.round(tokens / 1_000);
    const row = [
      name,
      variant,
      rounds,
      rejected,
      thousands(bill.input_tokens),
      thousands(bill.cache_read_tokens),
      thousands(bill.cache_write_5m_tokens),
      thousands(bill.cost_milli / 1_000),
      readable,
    ];
    console.log(`| ${row.join(" | ")} |`);
    if (outcome !== "finished") console.error(`${name}, ${variant}: ${outcome}`);
  } finally {
    await Promise.all([provider.stop(), server.stop()]);
  }
}

/** Returns the number of rounds whose output the model can read by a search of the session. */
async function readableRounds(session: ReturnType<Palimpsest["session"]>): Promise<number> {
  const rounds = new Set<string>();
  for await (const { snippet } of session.search(/round \d{6} line 00000001/)) {
    for (const [round] of snippet.matchAll(/round \d{6} line 00000001/g)) rounds.add(round);
  }
  return rounds.size;
}

const columns = ["rounds", "rejected requests", "input", "cache read", "cache written", "cost", "readable"];
console.log(`| model | variant | ${columns.join(" | ")} |\n|---|---|${"---|".repeat(columns.length)}`);
for (const api of apis) {
  for (const variant of variants) if (variant === (process.env.ONLY ?? variant)) await run(api, variant);
}
