// The examples as programs of their own.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Palimpsest } from "palimpsest";
import { collect, startProvider, startServer } from "./world.js";

const PACKAGE = new URL("../../", import.meta.url);
const answer = "Its disk was full.";
const server = await startServer();
const provider = await startProvider();
after(() => Promise.all([server.stop(), provider.stop()]));

/** Runs an example and returns its output. PALIMPSEST_EXAMPLES is a folder with the compiled examples. */
async function run(example: string, model: string, question = "Why did the build fail?"): Promise<string> {
  const folder = process.env.PALIMPSEST_EXAMPLES ?? fileURLToPath(new URL("js/examples", PACKAGE));
  const env = {
    ...process.env,
    PALIMPSEST_URL: server.url,
    OPENAI_API_KEY: "key",
    OPENAI_BASE_URL: `${provider.url}/v1`,
    // A key of its own, so that the model has its own bill.
    ANTHROPIC_API_KEY: model,
    ANTHROPIC_BASE_URL: provider.url,
    MODEL: model,
    SESSION: model.replaceAll(/[+=]/g, "-"),
  };
  const args = [`${folder}/${example}.js`, question];
  return (await promisify(execFile)(process.execPath, args, { env })).stdout;
}

for (const example of ["agent", "ai-sdk", "mastra"]) {
  test(`the example ${example} answers a question with a stored result`, async () => {
    const model = example === "agent" ? "claude-agent" : `gpt-${example}`;
    await provider.script(model, [
      { calls: [{ name: "read_log" }, { name: "read_log" }] },
      { calls: [{ name: "SearchTranscript", input: { pattern: "disk full" } }] },
      { text: answer },
    ]);
    assert.equal(await run(example, model), `${answer}\n`);
    const [, second, third] = (await provider.requests(model)).map((request) => JSON.stringify(request.body));
    assert.match(second ?? "", /palimpsest:\/\//);
    assert.ok(!second?.includes("disk full"));
    assert.ok(third?.includes("disk full"));
    const session = new Palimpsest({ url: server.url }).session("demo", model);
    assert.match(JSON.stringify(await collect(session.messages())), /"name":"SearchTranscript"/);
  });
}

test("the example sets cache breakpoints, and the provider reads the prompt from its cache", async () => {
  const model = "claude-cache";
  const calls = [{ name: "read_log" }];
  await provider.script(model, [{ calls }, { calls }, { text: answer }]);
  assert.equal(await run("agent", model), `${answer}\n`);
  const requests = await provider.requests(model);
  assert.equal(requests.length, 3);
  for (const { body } of requests) {
    assert.deepEqual(body.system[0].cache_control, { type: "ephemeral" });
    assert.deepEqual(body.messages.at(-1).content.at(-1).cache_control, { type: "ephemeral" });
  }
  // The third request reads the prompt of the second one. The first prompt is too short for the cache.
  const bill = await provider.bill(model);
  assert.ok(bill.cache_read_tokens > 1_000, JSON.stringify(bill));
});

test("a prompt that is too long is sent again, shorter, and the example ends with an answer", async () => {
  const model = "claude-window";
  // The eighth prompt exceeds the window by a part of one result. The rejection uses a turn of the script too.
  const calls = Array.from({ length: 8 }, () => ({ calls: [{ name: "read_log" }] }));
  await provider.script(model, [...calls, { text: answer }, { text: answer }], 5_300);
  assert.equal(await run("agent", model), `${answer}\n`);
  const requests = await provider.requests(model);
  const rejected = requests.findIndex((request) => request.status === 400);
  assert.deepEqual(
    requests.slice(rejected).map((request) => request.status),
    [400, 200],
  );
  const [long = 0, short = 0] = requests.slice(rejected).map(({ body }) => JSON.stringify(body).length);
  assert.ok(short < long, `${long}, then ${short} bytes`);
});

test("a first prompt that is too long ends the example, because nothing can be removed from it", async () => {
  await assert.rejects(run("agent", "claude-first+ptl=anthropic+times=1"), /PROMPT_TOO_LONG/);
});

test("the package imports its own files and its peers only", () => {
  const { peerDependencies } = JSON.parse(readFileSync(new URL("package.json", PACKAGE), "utf8"));
  const files = readdirSync(new URL("dist", PACKAGE));
  assert.ok(files.includes("index.js") && files.includes("index.d.ts"));
  for (const file of files) {
    const source = readFileSync(new URL(`dist/${file}`, PACKAGE), "utf8");
    for (const [, name = ""] of source.matchAll(/(?:from |import\(|import )"([^"]+)"/g)) {
      const [peer = ""] = /^(@[^/]+\/)?[^/]+/.exec(name) ?? [];
      assert.ok(name.startsWith("./") || peer in peerDependencies, `${file} imports ${name}`);
    }
  }
});

test("an example needs at most five lines, and with an adapter two, of which one is an import", () => {
  const script = fileURLToPath(new URL("scripts/count-glue", PACKAGE));
  const counted = execFileSync(script, { encoding: "utf8" }).trim().split("\n");
  assert.equal(counted.length, 3);
  for (const line of counted) {
    const [, example, lines, imports] = /^(.*): (\d+) lines, (\d+) of them imports$/.exec(line) ?? [];
    if (example === "agent.ts") assert.ok(Number(lines) <= 5, line);
    else assert.deepEqual([lines, imports], ["2", "1"], line);
    // No other line names anything of the package.
    const source = readFileSync(new URL(`examples/${example}`, PACKAGE), "utf8");
    const code = source.split("\n").filter((text) => !/^\/\/|^\/\*\*|\/\/ glue$/.test(text));
    assert.deepEqual(
      code.filter((text) => /palimpsest|session|context[MTP]|prepareCall/i.test(text)),
      [],
    );
  }
});
