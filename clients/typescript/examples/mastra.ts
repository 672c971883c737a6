// A complete agent with Mastra. The lines marked with `glue` are all that Palimpsest adds.
//
// PALIMPSEST_URL, OPENAI_API_KEY and OPENAI_BASE_URL are read by the clients.

import { openai } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { contextProcessor } from "palimpsest/mastra"; // glue
import { z } from "zod";

/** A tool of the agent. Its result is large, so the service stores it and shows the beginning. */
const readLog = createTool({
  id: "read_log",
  description: "Reads the log of the build.",
  inputSchema: z.object({}),
  execute: async () => {
    const steps = Array.from({ length: 5_000 }, (_, step) => `step ${step}: compiled, no warnings\n`);
    return { log: `${steps.join("")}disk full\n` };
  },
});

const agent = new Agent({
  id: "builder",
  name: "Builder",
  instructions: "Answer questions about the build.",
  model: openai(process.env.MODEL ?? "gpt-5"),
  tools: { read_log: readLog },
  inputProcessors: [contextProcessor("demo", process.env.SESSION ?? "mastra")], // glue
});

const { text } = await agent.generate(process.argv.slice(2).join(" ") || "Why did the build fail?");
console.log(text);
