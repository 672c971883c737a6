// Measures a task of an agent: its rounds, and the bill of the provider.
//
// The model calls a shell in each round, and answers after ROUNDS rounds (default 400). The provider counts the tokens of
// each request, bills its cache, and rejects a request that exceeds the window of the model. ONLY selects a variant.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { Palimpsest, type Session } from "palimpsest";
import { startProvider, startServer } from "../test/world.js";

export const ROUNDS = Number(process.env.ROUNDS ?? 400);
const OUTPUT_BYTES = [2_000, 40_000];
/** The limit of the variants that shorten the conversation at a number of tokens. */
export const LIMIT_TOKENS = 100_000;
export const INSTRUCTIONS = "You run the commands of a build, and report the failed ones.";
export const PROMPT = "Run all rounds of the build.";
export const MAX_OUTPUT_TOKENS = 16_000;
/** The request is the cache breakpoint, at its last block. OpenAI needs none. */
export const PROVIDER_OPTIONS = { anthropic: { cacheControl: { type: "ephemeral" as const } } };

const MODELS = [
  { name: "claude-sonnet-4-5", window: 200_000 },
  { name: "gpt-5", window: 272_000 },
];

/** The project and the session of the variants with a session. */
export const SESSION = ["demo", "task"] as const;

/** The parts that a variant uses. */
export interface World {
  model: ReturnType<ReturnType<typeof createOpenAI>>;
  client: Palimpsest;
  /** Runs the command of a round. */
  bash(input: { command: string }): Promise<string>;
}

/** Runs a task in all variants and prints a table. */
export async function compare(variants: Record<string, (world: World) => Promise<unknown>>): Promise<void> {
  const columns = ["rounds", "rejected requests", "input", "cache read", "cache written", "cost", "readable"];
  console.log(`| model | variant | ${columns.join(" | ")} |\n|---|---|${"---|".repeat(columns.length)}`);
  for (const { name, window } of MODELS) {
    for (const [variant, task] of Object.entries(variants)) {
      if (variant !== (process.env.ONLY ?? variant)) continue;
      const row = await measure(name, window, task);
      console.log(`| ${[name, variant, ...row].join(" | ")} |`);
    }
  }
}

/** Runs a task and returns a row of the table. Tokens are in thousands, and the cost in the price of 1,000 input tokens. */
async function measure(
  name: string,
  window: number,
  task: (world: World) => Promise<unknown>,
): Promise<number[]> {
  const provider = await startProvider();
  const server = await startServer();
  let [rounds, rejected, last] = [0, 0, ""];
  const counting: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    if (response.status === 400) rejected++;
    else last = String(init?.body);
    return response;
  };
  try {
    const agent = { rounds: ROUNDS, output_bytes: OUTPUT_BYTES };
    const script = { match: { model: name, tools: true }, agent, window };
    await fetch(`${provider.url}/_control/script`, { method: "POST", body: JSON.stringify(script) });
    const settings = { baseURL: `${provider.url}/v1`, apiKey: "key", fetch: counting };
    const model = name.startsWith("gpt") ? createOpenAI(settings)(name) : createAnthropic(settings)(name);
    const client = new Palimpsest({ url: server.url });
    const bash = async ({ command }: { command: string }) => {
      rounds++;
      return (await promisify(execFile)("sh", ["-c", command])).stdout;
    };
    await task({ model, client, bash }).catch((error: Error) => console.error(error.message));
    const bill = await provider.bill("key");
    const tokens = [bill.input_tokens, bill.cache_read_tokens, bill.cache_write_5m_tokens];
    const thousands = [...tokens, bill.cost_milli / 1_000].map((count) => Math.round(count / 1_000));
    return [
      rounds,
      rejected,
      ...thousands,
      (await readableRounds(client.session(...SESSION))) || roundsIn(last).size,
    ];
  } finally {
    await Promise.all([provider.stop(), server.stop()]);
  }
}

/** Returns the number of rounds whose output the model can find in the session. Without a session, returns 0. */
async function readableRounds(session: Session): Promise<number> {
  const hits: string[] = [];
  try {
    for await (const { snippet } of session.search(/round \d{6} line 00000001/)) hits.push(snippet);
  } catch {
    return 0;
  }
  return roundsIn(hits.join("\n")).size;
}

/** Returns the rounds whose output has its first line in a text. */
function roundsIn(text: string): Set<string> {
  return new Set(text.match(/round \d{6} line 00000001/g));
}
