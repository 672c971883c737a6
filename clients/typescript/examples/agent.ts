// A complete agent with the SDK of OpenAI. The lines with `session` are all that Palimpsest adds.
//
// PALIMPSEST_URL, OPENAI_API_KEY and OPENAI_BASE_URL are read by the clients.

import OpenAI from "openai";
import { isTooLong, Palimpsest } from "palimpsest";

const openai = new OpenAI();
const session = new Palimpsest().session("demo", process.env.SESSION ?? "agent");
const model = process.env.MODEL ?? "gpt-5";

/** A tool of the agent. Its result is large, so the service stores it and shows the beginning. */
function readLog(): string {
  const steps = Array.from({ length: 5_000 }, (_, step) => `step ${step}: compiled, no warnings\n`);
  return `${steps.join("")}disk full\n`;
}

async function answer(question: string): Promise<string> {
  const own: OpenAI.ChatCompletionTool[] = [
    { type: "function", function: { name: "read_log", description: "Reads the log of the build." } },
  ];
  const tools = [...own, ...(await session.tools("openai_chat"))];
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: question }];
  for (;;) {
    const body = { model, messages, tools };
    const view = await session.sync(body);
    if (!view.sendable) throw new Error(`The conversation cannot be sent: ${view.notSendableReason}`);
    const response = await openai.chat.completions.create(view.request).catch(async (tooLong) => {
      if (!isTooLong(tooLong)) throw tooLong;
      return openai.chat.completions.create((await session.sync(body, { tooLong })).request);
    });
    const message = response.choices[0]?.message;
    if (!message?.tool_calls) return message?.content ?? "";
    messages.push(message);
    for (const call of message.tool_calls) {
      if (session.isOwn(call)) messages.push(await session.runTool(call));
      else messages.push({ role: "tool", tool_call_id: call.id, content: readLog() });
    }
  }
}

console.log(await answer(process.argv.slice(2).join(" ") || "Why did the build fail?"));
