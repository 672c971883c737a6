// Types of `withSession` with those of a version of the AI SDK. The compiler is the test: no cast is needed.

import { generateText, type LanguageModel, stepCountIs, streamText, tool } from "ai";
import { withSession } from "palimpsest/ai-sdk";
import { z } from "zod";

/** Is `true` if the types are equal. */
type Same<A, B> = [A, B] extends [B, A] ? true : false;
function same<A, B>(_: Same<A, B>): void {}

export async function calls(model: LanguageModel): Promise<void> {
  const inputSchema = z.object({ line: z.number() });
  const read_log = tool({ inputSchema, execute: ({ line }) => `line ${line}` });
  const settings = {
    model,
    tools: { read_log },
    prompt: "Why did the build fail?",
    stopWhen: stepCountIs(3),
  };

  const { toolCalls } = await generateText(await withSession("demo", "types", settings));
  for (const call of toolCalls) {
    if (call.dynamic) same<typeof call.input, unknown>(true);
    else same<[typeof call.toolName, typeof call.input.line], ["read_log", number]>(true);
  }

  const result = streamText({
    ...(await withSession("demo", "types", { model: "openai/gpt-5", tools: { read_log } })),
    prompt: "Why did the build fail?",
    prepareStep: ({ messages }) => ({ messages: messages.slice(-1), activeTools: ["read_log"] }),
    onFinish: ({ text }) => same<typeof text, string>(true),
  });
  for (const { dynamic, toolName } of await result.toolCalls) {
    if (!dynamic) same<typeof toolName, "read_log">(true);
  }

  const named = await withSession("demo", "types", { model: "openai/gpt-5" });
  same<typeof named, { model: LanguageModel }>(true);
  await generateText({ ...named, prompt: "Why did the build fail?" });

  // @ts-expect-error a call needs a model
  await withSession("demo", "types", { tools: { read_log } });
  // @ts-expect-error a tool is an object
  await withSession("demo", "types", { model, tools: { read_log: "x" } });
}

/** The settings that depend on the tools keep their types. They are checked before the call of the AI SDK. */
export async function settings(model: LanguageModel): Promise<void> {
  const read_log = tool({
    inputSchema: z.object({ line: z.number() }),
    execute: ({ line }) => `line ${line}`,
  });
  const tools = { read_log };
  const forced = await withSession("demo", "types", {
    model,
    tools: { read_log },
    activeTools: ["read_log"],
    toolChoice: { type: "tool", toolName: "read_log" },
    prepareStep: ({ stepNumber }) => ({ activeTools: stepNumber ? [] : ["read_log"], model }),
  });
  const { toolCalls } = await generateText({ ...forced, prompt: "Why did the build fail?" });
  for (const call of toolCalls) if (!call.dynamic) same<typeof call.input.line, number>(true);

  const required = await withSession("demo", "types", {
    model,
    tools,
    toolChoice: "required",
    prepareStep: async ({ steps, messages }) =>
      steps.length ? { messages, model: "openai/gpt-5", toolChoice: "none" } : undefined,
  });
  streamText({ ...required, prompt: "Why did the build fail?" });

  // @ts-expect-error no tool has the name
  await withSession("demo", "types", { model, tools, activeTools: ["write_log"] });
  // @ts-expect-error no tool has the name
  await withSession("demo", "types", { model, tools, toolChoice: { type: "tool", toolName: "write_log" } });
  // @ts-expect-error no such choice
  await withSession("demo", "types", { model, tools, toolChoice: "sometimes" });
}
