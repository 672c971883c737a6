// A complete agent with the SDK of Anthropic. The lines marked with `glue` are all that Palimpsest adds.
//
// PALIMPSEST_URL, ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL are read by the clients.

import Anthropic from "@anthropic-ai/sdk";
import { Palimpsest } from "palimpsest"; // glue

const api = new Anthropic();
const session = new Palimpsest().session("demo", process.env.SESSION ?? "agent"); // glue
const fields = { model: process.env.MODEL ?? "claude-sonnet-4-5", max_tokens: 1_000, system: "Be brief." };

/** Runs the tool of the agent. Its result is large, so the service stores it and shows the beginning. */
function resultOf(call: Anthropic.ToolUseBlock): Anthropic.ToolResultBlockParam {
  const steps = Array.from({ length: 5_000 }, (_, step) => `step ${step}: compiled, no warnings\n`);
  return { type: "tool_result", tool_use_id: call.id, content: `${steps.join("")}disk full\n` };
}

async function answer(question: string): Promise<string> {
  const tools: Anthropic.Tool[] = [
    { name: "read_log", description: "Reads the log of the build.", input_schema: { type: "object" } },
  ];
  tools.push(...(await session.tools("anthropic_messages"))); // glue
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: question }];
  for (;;) {
    const body = { ...fields, messages, tools };
    // The provider reads the unchanged beginning of the prompt from its cache.
    const { content } = await session.send(body, (it) => api.messages.create(it), { cacheBreakpoints: true }); // glue
    messages.push({ role: "assistant", content });
    const calls = content.filter((block) => block.type === "tool_use");
    if (calls.length === 0) return content.map((block) => (block.type === "text" ? block.text : "")).join("");
    const results: Anthropic.ToolResultBlockParam[] = [];
    for (const call of calls) {
      results.push(session.isOwn(call) ? await session.runTool(call) : resultOf(call)); // glue
    }
    messages.push({ role: "user", content: results });
  }
}

console.log(await answer(process.argv.slice(2).join(" ") || "Why did the build fail?"));
