// A complete agent on Palimpsest with the SDK of OpenAI. See ../../README.md.

import { create } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import OpenAI from "openai";
import { ContextService } from "./gen/palimpsest/context/v1/context_service_pb.js";
import { Format, MessageInputSchema } from "./gen/palimpsest/context/v1/message_pb.js";
import { Provider } from "./gen/palimpsest/context/v1/view_pb.js";

type Message = OpenAI.ChatCompletionMessageParam;
const session = process.env["PALIMPSEST_SESSION"] ?? "projects/demo/sessions/agent";
const model = process.env["MODEL"] ?? "gpt-5";
const target = { provider: Provider.OPENAI, model };
const tools: OpenAI.ChatCompletionTool[] = [
  { type: "function", function: { name: "read_log", description: "Reads the build's log." } },
];
const baseUrl = `http://${process.env["PALIMPSEST_ADDRESS"] ?? "127.0.0.1:50051"}`;
const palimpsest = createClient(ContextService, createGrpcTransport({ baseUrl }));
const provider = new OpenAI();

function readLog(): string {
  const lines = Array.from({ length: 5_000 }, (_, n) => `step ${n}: compiled, and nothing was wrong\n`);
  return `${lines.join("")}disk full\n`;
}

/** Wraps an OpenAI message or response without changes. */
function asInput(message: object) {
  const json = Buffer.from(JSON.stringify(message));
  return create(MessageInputSchema, {
    content: { case: "payload", value: { format: Format.OPENAI_CHAT, json } },
  });
}

/** Runs a tool. Palimpsest replaces a large result by a preview and a reference. */
async function resultOf(call: OpenAI.ChatCompletionMessageFunctionToolCall): Promise<Message> {
  const text = readLog();
  const { replacement } = await palimpsest.persistToolResult({
    session,
    call: { toolUseId: call.id },
    toolName: call.function.name,
    content: { content: { case: "text", value: text } },
  });
  const content = replacement?.content.case === "text" ? replacement.content.value : text;
  return { role: "tool", tool_call_id: call.id, content };
}

/** Answers a tool call. Palimpsest runs its own tools, this program runs all others. */
async function answerOf(
  own: Set<string>,
  call: OpenAI.ChatCompletionMessageFunctionToolCall,
): Promise<Message> {
  if (!own.has(call.function.name)) return resultOf(call);
  const json = Buffer.from(JSON.stringify(call));
  const payload = { format: Format.OPENAI_CHAT, json };
  const { toolResultJson } = await palimpsest.callTool({ session, call: { case: "payload", value: payload } });
  return JSON.parse(Buffer.from(toolResultJson).toString()) as Message;
}

async function answer(text: string): Promise<string> {
  // The tools of Palimpsest, with which the model reads removed content.
  const listed = await palimpsest.listTools({ session, format: Format.OPENAI_CHAT });
  const own = new Set(listed.tools.map((tool) => tool.name));
  const definitions = listed.tools.map(
    (tool) => JSON.parse(Buffer.from(tool.definitionJson).toString()) as OpenAI.ChatCompletionTool,
  );
  const offered = [...tools, ...definitions];
  let array: Message[] = [];
  let knownEtag: Uint8Array = new Uint8Array();
  let messages = [asInput({ role: "user", content: text })];
  for (;;) {
    const view = await palimpsest.prepareContext({ session, target, knownEtag, messages });
    const fresh = view.messagesJson.map((json) => JSON.parse(Buffer.from(json).toString()) as Message);
    array = [...array.slice(0, view.keepMessages), ...fresh];
    knownEtag = view.etag;
    const response = await provider.chat.completions.create({ model, messages: array, tools: offered });
    // Appends the complete response. Palimpsest reads its usage, so token counts are exact afterwards.
    await palimpsest.appendMessages({ session, target, messages: [asInput(response)] });
    const said = response.choices[0]?.message;
    const calls = said?.tool_calls?.filter((call) => call.type === "function") ?? [];
    if (calls.length === 0) return said?.content ?? "";
    messages = (await Promise.all(calls.map((call) => answerOf(own, call)))).map(asInput);
  }
}

console.log(await answer(process.argv.slice(2).join(" ")));
process.exit(0);
