// Runs all cases, or those that the arguments name, on both ways. Prints one line of JSON per run.

import { anthropicMessages } from "./anthropic-messages.js";
import { anthropicRequests } from "./anthropic-requests.js";
import type { Case, Cases } from "./case.js";
import { openaiChat } from "./openai-chat.js";
import { openaiRequests } from "./openai-requests.js";
import { openaiResponses } from "./openai-responses.js";
import { plain, Run, ways } from "./world.js";

const lists: Cases[] = [anthropicMessages, anthropicRequests, openaiChat, openaiResponses, openaiRequests];

/** Returns the result of a case, or the error that it did not expect. */
async function outcome(run: Run, one: Case): Promise<object> {
  try {
    return { result: plain(await one.run(run)) };
  } catch (error) {
    return { failed: error instanceof Error ? `${error.stack}` : JSON.stringify(error) };
  }
}

const wanted = process.argv.slice(2);
const cases = lists.flatMap((list) => Object.entries(list));
if (new Set(cases.map(([name]) => name)).size !== cases.length) throw new Error("two cases have the same name");
for (const [name, one] of cases) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  if ("Deno" in globalThis && one.onDeno === false) continue;
  for (const way of ways()) {
    const run = new Run(name, way);
    const result = await outcome(run, one);
    const expects = one.body === undefined ? "original" : one.body;
    const { bodies } = run;
    console.log(JSON.stringify({ case: name, way: way.name, expects, aborts: one.aborts ?? 0, ...result, bodies }));
  }
}
