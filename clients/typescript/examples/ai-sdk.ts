// A complete agent with the AI SDK. The lines marked with `glue` are all that Palimpsest adds.
//
// PALIMPSEST_URL, OPENAI_API_KEY and OPENAI_BASE_URL are read by the clients.

import { openai } from "@ai-sdk/openai";
import { isStepCount, ToolLoopAgent, tool } from "ai";
import { withSession } from "palimpsest/ai-sdk"; // glue
import { z } from "zod";

/** A tool of the agent. Its result is large, so the service stores it and shows the beginning. */
const readLog = tool({
  description: "Reads the log of the build.",
  inputSchema: z.object({}),
  execute: () => {
    const steps = Array.from({ length: 5_000 }, (_, step) => `step ${step}: compiled, no warnings\n`);
    return `${steps.join("")}disk full\n`;
  },
});

const agent = new ToolLoopAgent({
  model: openai(process.env.MODEL ?? "gpt-5"),
  tools: { read_log: readLog },
  stopWhen: isStepCount(100),
  prepareCall: (call) => withSession("demo", process.env.SESSION ?? "ai-sdk", call), // glue
});

const prompt = process.argv.slice(2).join(" ") || "Why did the build fail?";
console.log((await agent.generate({ prompt })).text);
