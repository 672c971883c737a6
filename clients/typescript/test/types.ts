// Types of the package with the types of the providers' SDKs. The compiler is the test: no cast is needed.

import type Anthropic from "@anthropic-ai/sdk";
import type { Stream as AnthropicStream } from "@anthropic-ai/sdk/streaming";
import { type InferAgentUIMessage, type LanguageModel, ToolLoopAgent, tool } from "ai";
import type OpenAI from "openai";
import type { Stream } from "openai/streaming";
import type { Session } from "palimpsest";
import { withSession } from "palimpsest/ai-sdk";
import { z } from "zod";

/** Accepts values of exactly one type. */
type Same<A, B> = [A, B] extends [B, A] ? true : false;
function same<A, B>(_: Same<A, B>): void {}

export async function chat(openai: OpenAI, session: Session): Promise<void> {
  const model = "gpt-5";
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Hello" }];
  const own: OpenAI.ChatCompletionTool[] = [{ type: "function", function: { name: "read_log" } }];
  const tools = [...own, ...(await session.tools("openai_chat"))];
  const view = await session.sync({ model, messages, tools });
  same<typeof view.messages, OpenAI.ChatCompletionMessageParam[]>(true);
  const response = await openai.chat.completions.create(view.request);
  same<typeof response, OpenAI.ChatCompletion & { _request_id?: string | null }>(true);
  for (const call of response.choices[0]?.message.tool_calls ?? []) {
    if (session.isOwn(call)) messages.push(await session.runTool(call));
  }

  const params: OpenAI.ChatCompletionCreateParamsNonStreaming = { model, messages };
  const typed = await session.sync(params, { lastResponse: response });
  same<typeof typed.request, OpenAI.ChatCompletionCreateParamsNonStreaming>(true);
  await openai.chat.completions.create(typed.request);

  const inline = await session.sync({
    model,
    messages: [
      { role: "developer", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "Hello" }] },
      {
        role: "assistant",
        tool_calls: [{ id: "a", type: "function", function: { name: "x", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "a", content: "done" },
    ],
    tools: [{ type: "function", function: { name: "x", parameters: { type: "object" } } }],
    tool_choice: "auto",
    stream: true,
  });
  const stream = await openai.chat.completions.create(inline.request);
  same<typeof stream, Stream<OpenAI.ChatCompletionChunk> & { _request_id?: string | null }>(true);
}

export async function sent(openai: OpenAI, anthropic: Anthropic, session: Session): Promise<void> {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Hello" }];
  const response = await session.send({ model: "gpt-5", messages }, (request, view) => {
    same<typeof view.messages, OpenAI.ChatCompletionMessageParam[]>(true);
    return openai.chat.completions.create(request);
  });
  response.choices satisfies OpenAI.ChatCompletion["choices"];
  const body = { model: "gpt-5", messages, stream: true as const };
  const stream = await session.send(body, (request) => openai.chat.completions.create(request));
  for await (const chunk of stream) chunk.choices satisfies OpenAI.ChatCompletionChunk["choices"];
  const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "Hello" }];
  await session.send({ model: "gpt-5", input }, (request) => openai.responses.create(request));
  const prompt: Anthropic.MessageParam[] = [{ role: "user", content: "Hello" }];
  const message = await session.send(
    { model: "claude-sonnet-4-5", max_tokens: 1_000, messages: prompt },
    (request) => anthropic.messages.create(request),
  );
  message.content satisfies Anthropic.ContentBlock[];
}

export async function responses(openai: OpenAI, session: Session): Promise<void> {
  const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "Hello" }];
  const tools = await session.tools("openai_responses");
  const view = await session.sync({ model: "gpt-5", input, tools });
  const response = await openai.responses.create(view.request);
  for (const item of response.output) {
    if (item.type === "function_call" && session.isOwn(item)) input.push(item, await session.runTool(item));
  }
  const text = await session.sync({
    model: "gpt-5",
    instructions: "Be brief.",
    input: "Hello",
    stream: true,
  });
  for await (const event of await openai.responses.create(text.request)) event.type satisfies string;
  const params: OpenAI.Responses.ResponseCreateParamsNonStreaming = { model: "gpt-5", input };
  await openai.responses.create((await session.sync(params)).request);
}

export async function anthropic(client: Anthropic, session: Session): Promise<void> {
  const model = "claude-sonnet-4-5";
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: "Hello" }];
  const own: Anthropic.Tool[] = [{ name: "read_log", input_schema: { type: "object" } }];
  const tools = [...own, ...(await session.tools("anthropic_messages"))];
  const view = await session.sync({ model, max_tokens: 1_000, messages, tools });
  const response = await client.messages.create(view.request);
  messages.push({ role: "assistant", content: response.content });
  const results: Anthropic.ToolResultBlockParam[] = [];
  for (const block of response.content) {
    if (block.type === "tool_use" && session.isOwn(block)) results.push(await session.runTool(block));
  }
  const inline = await session.sync({
    model,
    max_tokens: 1_000,
    system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
    messages: [
      { role: "user", content: [{ type: "text", text: "Hello", cache_control: { type: "ephemeral" } }] },
      { role: "assistant", content: [{ type: "tool_use", id: "a", name: "x", input: {} }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "done" }] },
    ],
    tools: [{ name: "x", input_schema: { type: "object" } }],
    thinking: { type: "enabled", budget_tokens: 1_024 },
    stream: true,
  });
  const stream = await client.messages.create(inline.request);
  same<typeof stream, AnthropicStream<Anthropic.RawMessageStreamEvent> & { _request_id?: string | null }>(
    true,
  );
}

export function agent(model: LanguageModel): void {
  const read_log = tool({
    inputSchema: z.object({ line: z.number() }),
    execute: ({ line }) => `line ${line}`,
  });
  const agent = new ToolLoopAgent({
    model,
    tools: { read_log },
    callOptionsSchema: z.object({ id: z.string() }),
    runtimeContext: { line: 1 },
    activeTools: ["read_log"],
    prepareStep: ({ messages, runtimeContext }) => ({ messages: messages.slice(-runtimeContext.line) }),
    prepareCall: ({ options, ...call }) => withSession("demo", options.id, call),
  });
  same<typeof agent, ToolLoopAgent<{ id: string }, { read_log: typeof read_log }, { line: number }>>(true);
  type ToolPart = Extract<InferAgentUIMessage<typeof agent>["parts"][number], { type: "tool-read_log" }>;
  const input: ToolPart["input"] = { line: 1 };
  input satisfies object | undefined;
}

export function rejected(session: Session, model: LanguageModel): void {
  // @ts-expect-error the model of the session sets the error itself
  withSession("demo", "types", { model }, { tooLong: "prompt is too long" });
  // @ts-expect-error a body needs an array
  session.sync({ model: "gpt-5", messages: "Hello" });
  // @ts-expect-error the format is one of three
  session.tools("gemini");
  // @ts-expect-error a rewind needs its point
  session.rewind({ dry_run: true });
  // @ts-expect-error a rewind has one point
  session.rewind({ to_message_id: "a", before_message_id: "b" });
}
