// Messages, streams, tools and contents with Anthropic's SDK.

import type Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

import type { Cases } from "./case.js";
import { all, linesOf, PDF, PNG, type Run, type Turn } from "./world.js";

type Request = Anthropic.MessageCreateParamsNonStreaming;
type Content = Anthropic.ContentBlockParam[];

export const tools: Anthropic.Tool[] = [
  {
    name: "weather",
    description: "Returns the weather of a city.",
    input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
export const CALL: Turn = { text: "I look.", calls: [{ name: "weather", input: { city: 'Zürich "Nord"' } }] };
export const ANSWER: Turn = { text: "It rains in Zürich, and 😀 smiles." };
export const Weather = z.object({ city: z.string(), degrees: z.number() });

export function user(content: string | Content): Anthropic.MessageParam {
  return { role: "user", content };
}

export function request(run: Run, changes: Partial<Request> = {}): Request {
  return { model: run.claude, max_tokens: 4_000, messages: [user(`${run.name}: hello`)], ...changes };
}

const weather = betaZodTool({
  name: "weather",
  description: "Returns the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  run: ({ city }) => `It rains in ${city}.`,
});
const bash = betaZodTool({
  name: "bash",
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  run: ({ command }) => linesOf(command),
});

export const anthropicMessages: Cases = {
  "messages-create": {
    async run(run) {
      await run.script(run.claude, [ANSWER]);
      const system: Anthropic.TextBlockParam[] = [
        { type: "text", text: "Be brief.", cache_control: { type: "ephemeral", ttl: "1h" } },
      ];
      return run.anthropic.messages.create(
        request(run, { system, stop_sequences: ["STOP"], metadata: { user_id: "someone" }, service_tier: "auto" }),
      );
    },
  },
  "messages-create-stream": {
    async run(run) {
      await run.script(run.claude, [CALL]);
      return all(await run.anthropic.messages.create({ ...request(run, { tools }), stream: true }));
    },
  },
  "messages-stream": {
    async run(run) {
      await run.script(run.claude, [{ ...CALL, thinking: "Let me see.", pace: { pings: 2, delta_bytes: 3 } }]);
      const thinking = { type: "enabled" as const, budget_tokens: 2_000 };
      const stream = run.anthropic.messages.stream(request(run, { tools, thinking }));
      const seen: unknown[] = [];
      stream.on("text", (delta, snapshot) => seen.push(["text", delta, snapshot]));
      stream.on("inputJson", (delta, snapshot) => seen.push(["inputJson", delta, structuredClone(snapshot)]));
      stream.on("thinking", (delta, snapshot) => seen.push(["thinking", delta, snapshot]));
      stream.on("signature", (signature) => seen.push(["signature", signature]));
      stream.on("contentBlock", (block) => seen.push(["contentBlock", structuredClone(block)]));
      const events = await all(stream);
      return [events, seen, await stream.finalMessage(), stream.request_id];
    },
  },
  "messages-final-text": {
    async run(run) {
      await run.script(run.claude, [ANSWER]);
      return run.anthropic.messages.stream(request(run)).finalText();
    },
  },
  "beta-messages-stream": {
    async run(run) {
      await run.script(run.claude, [CALL]);
      const stream = run.anthropic.beta.messages.stream({ ...request(run), tools: [weather] });
      return [await all(stream), await stream.finalMessage()];
    },
  },
  "messages-turns": {
    async run(run) {
      const messages: Anthropic.MessageParam[] = [];
      const responses = [];
      for (let turn = 0; turn < 4; turn++) {
        messages.push(user(`${run.name}: question ${turn}`));
        const response = await run.anthropic.messages.create(request(run, { messages }));
        messages.push({ role: "assistant", content: response.content });
        responses.push(response);
      }
      return responses;
    },
  },
  "tool-runner": {
    async run(run) {
      await run.script(run.claude, [CALL, CALL, ANSWER]);
      const body = { ...request(run), tools: [weather], thread: false as const };
      return all(run.anthropic.beta.messages.toolRunner(body));
    },
  },
  "tool-runner-stream": {
    async run(run) {
      await run.script(run.claude, [CALL, ANSWER]);
      const body = { ...request(run), tools: [weather], thread: false as const, stream: true as const };
      const messages = [];
      for await (const stream of run.anthropic.beta.messages.toolRunner(body)) {
        messages.push([await all(stream), await stream.finalMessage()]);
      }
      return messages;
    },
  },
  "tool-runner-thread": {
    // Without `thread: false`, the provider holds the conversation after the first request.
    body: "stateful",
    async run(run) {
      await run.script(run.claude, [CALL, CALL, ANSWER]);
      return run.anthropic.beta.messages.toolRunner({ ...request(run), tools: [weather] }).runUntilDone();
    },
  },
  "messages-parse": {
    async run(run) {
      const turn = { text: '{"city": "Zürich", "degrees": 21.5}' };
      await run.script(run.claude, [turn, turn]);
      const output_config = { format: zodOutputFormat(Weather) };
      const parsed = await run.anthropic.messages.parse({ ...request(run), output_config });
      if (parsed.parsed_output?.degrees !== 21.5) throw new Error("not parsed");
      const stream = run.anthropic.messages.stream({ ...request(run), output_config });
      return [parsed, await all(stream), (await stream.finalMessage()).parsed_output];
    },
  },
  "messages-images": {
    async run(run) {
      const content: Content = [
        { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } },
        { type: "image", source: { type: "url", url: "https://example.com/cat.jpg" } },
        { type: "text", text: `${run.name}: compare them` },
      ];
      return run.anthropic.messages.create(request(run, { messages: [user(content)] }));
    },
  },
  "messages-documents-and-citations": {
    async run(run) {
      await run.script(run.claude, [{ ...ANSWER, citations: ["it rains", "it snows"] }, ANSWER]);
      const text = { type: "text" as const, media_type: "text/plain" as const, data: "Today it rains." };
      const content: Content = [
        { type: "document", source: text, title: "Report", context: "News", citations: { enabled: true } },
        { type: "document", source: { type: "base64", media_type: "application/pdf", data: PDF } },
        { type: "document", source: { type: "content", content: [{ type: "text", text: "One block." }] } },
        { type: "text", text: `${run.name}: what is the weather?` },
      ];
      const messages = [user(content)];
      const stream = run.anthropic.messages.stream(request(run, { messages }));
      const seen: unknown[] = [];
      stream.on("citation", (citation) => seen.push(structuredClone(citation)));
      const first = await stream.finalMessage();
      messages.push({ role: "assistant", content: first.content }, user("And tomorrow?"));
      return [seen, first, await run.anthropic.messages.create(request(run, { messages }))];
    },
  },
  "messages-thinking": {
    async run(run) {
      const thinking = { type: "enabled" as const, budget_tokens: 2_000 };
      const turns = [{ ...CALL, thinking: "I need the tool. 😀" }, { ...ANSWER, thinking: "Now I know." }, ANSWER];
      await run.script(run.claude, turns);
      const messages = [user(`${run.name}: think`)];
      const responses = [];
      for (let turn = 0; turn < 3; turn++) {
        const response = await run.anthropic.messages.stream(request(run, { messages, tools, thinking })).finalMessage();
        responses.push(response);
        // The provider rejects thinking that differs from the signed one.
        messages.push({ role: "assistant", content: response.content });
        const call = response.content.find((block) => block.type === "tool_use");
        messages.push(
          call ? user([{ type: "tool_result", tool_use_id: call.id, content: "rain" }]) : user(`And then? ${turn}`),
        );
      }
      return responses;
    },
  },
  "messages-server-tools": {
    async run(run) {
      const search = { type: "web_search_20250305" as const, name: "web_search" as const, max_uses: 3 };
      const hit = {
        type: "web_search_result" as const,
        url: "https://example.com",
        title: "Rain",
        encrypted_content: "abc=",
      };
      const content: Content = [
        { type: "redacted_thinking", data: "secret" },
        { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "rain" } },
        { type: "web_search_tool_result", tool_use_id: "srvtoolu_1", content: [hit] },
        { type: "text", text: "It rains." },
      ];
      const messages = [user(`${run.name}: search`), { role: "assistant" as const, content }, user("Really?")];
      return run.anthropic.messages.create(request(run, { messages, tools: [search] }));
    },
  },
  "tool-runner-managed": {
    body: "managed",
    async run(run) {
      await run.scriptLong(run.claude);
      const body = { ...request(run, { max_tokens: 1_000 }), tools: [bash], thread: false as const };
      return all(run.anthropic.beta.messages.toolRunner(body));
    },
  },
  "tool-runner-stream-managed": {
    body: "managed",
    async run(run) {
      await run.scriptLong(run.claude);
      const messages = [];
      const runner = run.anthropic.beta.messages.toolRunner({
        ...request(run, { max_tokens: 1_000 }),
        thinking: { type: "adaptive" },
        tools: [bash],
        thread: false,
        stream: true,
      });
      for await (const stream of runner) messages.push(await stream.finalMessage());
      return messages;
    },
  },
};
