// Chat Completions with OpenAI's SDK.

import type OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { Weather } from "./anthropic-messages.js";
import type { Cases } from "./case.js";
import { all, linesOf, PDF, PNG, type Run, type Turn } from "./world.js";

type Request = OpenAI.ChatCompletionCreateParamsNonStreaming & { stream?: undefined };
type Messages = OpenAI.ChatCompletionMessageParam[];

export const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tools: OpenAI.ChatCompletionTool[] = [{ type: "function", function: { name: "weather", parameters, strict: true } }];
export const CALLS: Turn = {
  text: "I look.",
  calls: [
    { name: "weather", input: { city: 'Zürich "Nord"' } },
    { name: "weather", input: { city: "Oslo" } },
  ],
};
export const ANSWER: Turn = { text: "It rains in Zürich, and 😀 smiles." };
const weather = zodFunction({
  name: "weather",
  parameters: z.object({ city: z.string() }),
  function: ({ city }) => `It rains in ${city}.`,
  description: "Returns the weather of a city.",
});
const bash = zodFunction({
  name: "bash",
  parameters: z.object({ command: z.string() }),
  function: ({ command }) => linesOf(command),
  description: "Runs a command.",
});

export function request(run: Run, changes: Partial<Request> = {}): Request {
  const messages: Messages = [
    { role: "system", content: "Be brief." },
    { role: "user", content: `${run.name}: hello` },
  ];
  return { model: run.gpt, messages, ...changes };
}

export const openaiChat: Cases = {
  "chat-create": {
    async run(run) {
      await run.script(run.gpt, [ANSWER]);
      const options = { temperature: 0.5, max_completion_tokens: 500, seed: 7, stop: ["STOP"], store: false };
      return run.openai.chat.completions.create(request(run, { ...options, prompt_cache_key: "key" }));
    },
  },
  "chat-create-stream": {
    async run(run) {
      await run.script(run.gpt, [CALLS, ANSWER]);
      const body = { ...request(run, { tools, parallel_tool_calls: true }), stream: true as const };
      const { completions } = run.openai.chat;
      const chunks = await all(await completions.create(body));
      return [chunks, await all(await completions.create({ ...body, stream_options: { include_usage: true } }))];
    },
  },
  "chat-stream": {
    async run(run) {
      await run.script(run.gpt, [{ ...CALLS, pace: { delta_bytes: 3 } }]);
      const body = { ...request(run, { tools }), stream_options: { include_usage: true } };
      const stream = run.openai.chat.completions.stream(body);
      const seen: unknown[] = [];
      stream.on("content", (delta, snapshot) => seen.push([delta, snapshot]));
      stream.on("tool_calls.function.arguments.done", (call) => seen.push(structuredClone(call)));
      return [await all(stream), seen, await stream.finalChatCompletion(), await stream.totalUsage()];
    },
  },
  "chat-turns": {
    async run(run) {
      const messages: Messages = [{ role: "developer", content: "Be brief." }];
      const responses = [];
      for (let turn = 0; turn < 4; turn++) {
        messages.push({ role: "user", content: `${run.name}: question ${turn}` });
        const response = await run.openai.chat.completions.create(request(run, { messages }));
        const message = response.choices[0]?.message;
        if (message) messages.push(message);
        responses.push(response);
      }
      return responses;
    },
  },
  "chat-run-tools": {
    async run(run) {
      await run.script(run.gpt, [CALLS, ANSWER]);
      const runner = run.openai.chat.completions.runTools({ ...request(run), tools: [weather] });
      return [await runner.finalContent(), runner.messages, runner.allChatCompletions(), await runner.totalUsage()];
    },
  },
  "chat-run-tools-stream": {
    async run(run) {
      await run.script(run.gpt, [CALLS, ANSWER]);
      const runner = run.openai.chat.completions.runTools({ ...request(run), tools: [weather], stream: true });
      return [await all(runner), await runner.finalContent(), runner.messages];
    },
  },
  "chat-parse": {
    async run(run) {
      const turn = { text: '{"city": "Zürich", "degrees": 21.5}' };
      await run.script(run.gpt, [turn, { calls: [{ name: "weather", input: { city: "Oslo" } }] }, turn]);
      const { completions } = run.openai.chat;
      const response_format = zodResponseFormat(Weather, "weather");
      const parsed = await completions.parse({ ...request(run), response_format });
      if (parsed.choices[0]?.message.parsed?.degrees !== 21.5) throw new Error("not parsed");
      const called = await completions.parse({ ...request(run), tools: [weather] });
      const stream = completions.stream({ ...request(run), response_format });
      return [parsed, called, await all(stream), await stream.finalChatCompletion()];
    },
  },
  "chat-contents": {
    async run(run) {
      const content: OpenAI.ChatCompletionContentPart[] = [
        { type: "image_url", image_url: { url: "https://example.com/cat.jpg", detail: "low" } },
        { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
        { type: "file", file: { filename: "a.pdf", file_data: `data:application/pdf;base64,${PDF}` } },
        { type: "text", text: `${run.name}: compare` },
      ];
      const messages: Messages = [
        { role: "user", content },
        { role: "assistant", content: "Equal." },
        { role: "user", content: "Really?" },
      ];
      return run.openai.chat.completions.create(request(run, { messages }));
    },
  },
  "chat-run-tools-managed": {
    body: "managed",
    async run(run) {
      await run.scriptLong(run.gpt);
      const options = { maxChatCompletions: 50 };
      const runner = run.openai.chat.completions.runTools({ ...request(run), tools: [bash] }, options);
      return [await runner.finalContent(), runner.messages, runner.allChatCompletions()];
    },
  },
};
