// A complete agent with the SDK of OpenAI. The lines marked with `glue` are all that Palimpsest adds.
//
// PALIMPSEST_URL, OPENAI_API_KEY and OPENAI_BASE_URL are read by the clients.

import OpenAI from "openai";
import { Palimpsest } from "palimpsest"; // glue

const openai = new OpenAI();
const session = new Palimpsest().session("demo", process.env.SESSION ?? "agent"); // glue
const model = process.env.MODEL ?? "gpt-5";

/** Runs the tool of the agent. Its result is large, so the service stores it and shows the beginning. */
function resultOf(call: OpenAI.ChatCompletionMessageToolCall): OpenAI.ChatCompletionToolMessageParam {
  const steps = Array.from({ length: 5_000 }, (_, step) => `step ${step}: compiled, no warnings\n`);
  return { role: "tool", tool_call_id: call.id, content: `${steps.join("")}disk full\n` };
}

async function answer(question: string): Promise<string> {
  const tools: OpenAI.ChatCompletionTool[] = [
    { type: "function", function: { name: "read_log", description: "Reads the log of the build." } },
  ];
  tools.push(...(await session.tools("openai_chat"))); // glue
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: question }];
  for (;;) {
    const body = { model, messages, tools };
    const response = await session.send(body, (request) => openai.chat.completions.create(request)); // glue
    const message = response.choices[0]?.message;
    if (!message?.tool_calls) return message?.content ?? "";
    messages.push(message);
    for (const call of message.tool_calls) {
      messages.push(session.isOwn(call) ? await session.runTool(call) : resultOf(call)); // glue
    }
  }
}

console.log(await answer(process.argv.slice(2).join(" ") || "Why did the build fail?"));
