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
async function run(example: string, model: string): Promise<string> {
  const folder = process.env.PALIMPSEST_EXAMPLES ?? fileURLToPath(new URL("js/examples", PACKAGE));
  const env = {
    ...process.env,
    PALIMPSEST_URL: server.url,
    OPENAI_API_KEY: "key",
    OPENAI_BASE_URL: `${provider.url}/v1`,
    MODEL: model,
    SESSION: model.replaceAll(/[+=]/g, "-"),
  };
  const args = [`${folder}/${example}.js`, "Why did the build fail?"];
  return (await promisify(execFile)(process.execPath, args, { env })).stdout;
}

for (const example of ["agent", "ai-sdk", "mastra"]) {
  test(`the example ${example} answers a question with a stored result`, async () => {
    const model = `gpt-${example}`;
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

test("the example sends a prompt that is too long again", async () => {
  // The server receives the error of the provider. From one short message, nothing can be removed.
  await assert.rejects(run("agent", "gpt-agent-long+ptl=openai+times=1"), /PROMPT_TOO_LONG/);
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
