// The example as a program of its own.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { Palimpsest } from "palimpsest";
import { collect, startProvider, startServer } from "./world.js";

const server = await startServer();
const provider = await startProvider();
after(() => Promise.all([server.stop(), provider.stop()]));

test("the example answers a question with a stored result", async () => {
  const answer = "Its disk was full.";
  const model = "gpt-example";
  await provider.script(model, [
    { calls: [{ name: "read_log" }, { name: "read_log" }] },
    { calls: [{ name: "SearchTranscript", input: { pattern: "disk full" } }] },
    { text: answer },
  ]);
  const env = {
    ...process.env,
    PALIMPSEST_URL: server.url,
    OPENAI_API_KEY: "key",
    OPENAI_BASE_URL: `${provider.url}/v1`,
  };
  // PALIMPSEST_EXAMPLE is the program to run, for example that of an installed package.
  const program = process.env.PALIMPSEST_EXAMPLE ?? new URL("../examples/agent.js", import.meta.url).pathname;
  const run = (name: string) => {
    const variables = { ...env, MODEL: name, SESSION: name.replaceAll(/[+=]/g, "-") };
    return promisify(execFile)(process.execPath, [program, "Why did the build fail?"], { env: variables });
  };
  assert.equal((await run(model)).stdout, `${answer}\n`);
  const [, second, third] = (await provider.requests(model)).map((request) => JSON.stringify(request.body));
  assert.match(second ?? "", /palimpsest:\/\//);
  assert.ok(!second?.includes("disk full"));
  assert.ok(third?.includes("disk full"));
  const session = new Palimpsest({ url: server.url }).session("demo", model);
  // The question, two responses with calls, and three results. The last response ends the program.
  assert.equal((await collect(session.messages())).length, 6);
  // The server receives the error of the provider. From one short message, nothing can be removed.
  await assert.rejects(run("gpt-example+ptl=openai+times=1"), /PROMPT_TOO_LONG/);
});
