// Agents of Mastra with the providers of the AI SDK against the fake provider.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Agent, type AgentConfig } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import { Memory } from "@mastra/memory";
import type { ModelMessage } from "ai";
import { Palimpsest } from "palimpsest";
import { contextProcessor } from "palimpsest/mastra";
import { z } from "zod";
import { modelsOf } from "./models.js";
import { collect, largeLog, startProvider, startServer } from "./world.js";

const server = await startServer();
const provider = await startProvider();
after(() => Promise.all([server.stop(), provider.stop()]));

const client = new Palimpsest({ url: server.url });
const models = modelsOf(provider.url);

const inputSchema = z.object({});
const tools = {
  read_log: createTool({
    id: "read_log",
    description: "Reads the log.",
    inputSchema,
    execute: async () => ({ text: largeLog() }),
  }),
  list_files: createTool({
    id: "list_files",
    description: "Lists files.",
    inputSchema,
    execute: async () => ({ files: ["Cargo.toml"] }),
  }),
};
const prompt = "Why did the build fail?";
const answer = "Its disk was full.";

function agentOf(fields: Pick<AgentConfig, "model" | "inputProcessors" | "memory">): Agent {
  const agent = new Agent({ id: "builder", name: "Builder", instructions: "Be brief.", tools, ...fields });
  // Registered without a logger, because failed requests are part of the tests.
  new Mastra({ agents: { builder: agent }, logger: false });
  return agent;
}

/** A conversation that a compaction can shorten. */
const history = Array.from({ length: 21 }, (_, index): ModelMessage => {
  const content = index % 2 ? `answer ${index}${" word".repeat(1_000)}` : `question ${index}`;
  return { role: index % 2 ? "assistant" : "user", content };
});

for (const [api, create] of Object.entries(models)) {
  for (const streams of [false, true]) {
    const name = `mastra-${api}-${streams ? "stream" : "generate"}`;

    test(`${name}: parallel calls, a stored result, a read-back tool and exact counts`, async () => {
      await provider.script(name, [
        { calls: [{ name: "read_log" }, { name: "list_files" }] },
        { calls: [{ name: "SearchTranscript", input: { pattern: "disk full" } }] },
        { text: answer },
      ]);
      const session = client.session("demo", name);
      const agent = agentOf({
        model: create(name),
        inputProcessors: [contextProcessor("demo", name, { client })],
      });
      const text = streams ? await (await agent.stream(prompt)).text : (await agent.generate(prompt)).text;
      assert.equal(text, answer);
      const requests = await provider.requests(name);
      assert.deepEqual(
        requests.map((request) => request.status),
        [200, 200, 200],
      );
      const [, second, third] = requests.map((request) => JSON.stringify(request.body));
      assert.match(second ?? "", /palimpsest:\/\//);
      assert.match(second ?? "", /Cargo.toml/);
      assert.ok(!second?.includes("step 4999"));
      assert.ok((third?.split("disk full").length ?? 0) > 2);
      const { counts } = await session.get();
      assert.ok((counts.reported_tokens ?? 0) > 0);
    });

    test(`${name}: a prompt that is too long is sent again once`, async () => {
      const wording = { anthropic: "anthropic", chat: "openai", responses: "responses" }[api];
      const long = `${name}+ptl=${wording}+times=1`;
      const inputProcessors = [contextProcessor("demo", `${name}-long`, { client })];
      const agent = agentOf({ model: create(long), inputProcessors });
      await (streams ? (await agent.stream(history)).consumeStream() : agent.generate(history));
      // A stream of the Responses API has begun when it reports the error.
      const rejected = api === "responses" && streams ? 200 : 400;
      assert.deepEqual(
        (await provider.requests(long)).map((request) => request.status),
        [rejected, 200],
      );
    });
  }

  test(`mastra-${api}: a compaction and an undo`, async () => {
    const name = `mastra-${api}-undo`;
    await provider.script(
      name,
      Array.from({ length: 3 }, () => ({ text: answer })),
    );
    const session = client.session("demo", name);
    const agent = agentOf({
      model: create(name),
      inputProcessors: [contextProcessor("demo", name, { client })],
    });
    await agent.generate(history);
    await session.compact();
    await agent.generate(history);
    await session.undo();
    await agent.generate(history);
    const [before, compacted, restored] = (await provider.requests(name)).map((request) =>
      JSON.stringify(request.body.messages ?? request.body.input),
    );
    const [long = 0, short = 0] = [before?.length, compacted?.length];
    assert.ok(short < long * 0.8, `${long}, then ${short} bytes`);
    assert.equal(restored, before);
  });
}

test("each thread of a memory has a session, whose view keeps the messages that the memory leaves out", async () => {
  const name = "mastra-memory";
  await provider.script(
    name,
    Array.from({ length: 16 }, (_, index) => ({ text: `Answer ${index}.` })),
  );
  const memory = new Memory({ storage: new InMemoryStore(), options: { lastMessages: 4 } });
  const processor = contextProcessor("demo", (thread) => `mastra-${thread}`, { client });
  const agent = agentOf({ model: models.anthropic(name), memory, inputProcessors: [processor] });
  for (let turn = 0; turn < 8; turn++) {
    for (const thread of ["a", "b"]) {
      await agent.generate(`Question ${turn} of ${thread}?`, { memory: { thread, resource: "user" } });
    }
  }
  for (const thread of ["a", "b"]) {
    const messages = await collect(client.session("demo", `mastra-${thread}`).messages());
    const text = JSON.stringify(messages);
    for (let turn = 0; turn < 8; turn++) assert.ok(text.includes(`Question ${turn} of ${thread}?`), text);
    assert.ok(!text.includes(thread === "a" ? "of b?" : "of a?"));
    // The session has received no answer to the last question yet.
    assert.equal(messages.length, 15);
  }
  const requests = await provider.requests(name);
  const last = JSON.stringify(requests.at(-1)?.body.messages);
  for (let turn = 0; turn < 8; turn++) assert.ok(last.includes(`Question ${turn} of b?`), last);
  await assert.rejects(agent.generate(prompt), /without a thread of its memory/);
});

test("cache breakpoints of a view reach the provider, which reads its cache", async () => {
  const name = "mastra-cached";
  const calls = [{ name: "read_log" }];
  await provider.script(name, [{ calls }, { calls }, { text: answer }]);
  const inputProcessors = [contextProcessor("demo", name, { client, cacheBreakpoints: true })];
  const agent = agentOf({ model: modelsOf(provider.url, name).anthropic(name), inputProcessors });
  assert.equal((await agent.generate(prompt)).text, answer);
  const requests = await provider.requests(name);
  assert.equal(requests.length, 3);
  for (const { body } of requests) {
    assert.deepEqual(body.system.at(-1).cache_control, { type: "ephemeral" });
    assert.deepEqual(body.messages.at(-1).content.at(-1).cache_control, { type: "ephemeral" });
  }
  const bill = await provider.bill(name);
  assert.ok(bill.cache_read_tokens > 1_000, JSON.stringify(bill));
});

test("a model gets no tools of the service without read-back", async () => {
  const name = "mastra-no-read-back";
  await provider.script(name, [{ calls: [{ name: "list_files" }] }, { text: answer }]);
  const inputProcessors = [contextProcessor("demo", name, { client, readBack: false })];
  const agent = agentOf({ model: models.anthropic(name), inputProcessors });
  assert.equal((await agent.generate(prompt)).text, answer);
  const requests = await provider.requests(name);
  assert.equal(requests.length, 2);
  for (const { body } of requests) {
    const names: string[] = body.tools.map((tool: { name: string }) => tool.name);
    assert.deepEqual(names.sort(), ["list_files", "read_log"]);
  }
  assert.ok(((await client.session("demo", name).get()).counts.messages ?? 0) > 0);
});

test("a model from a configuration of Mastra", async () => {
  const name = "mastra-config";
  await provider.script(name, [{ calls: [{ name: "read_log" }] }, { text: answer }]);
  const session = client.session("demo", name);
  const model = { providerId: "fake", modelId: name, url: `${provider.url}/v1`, apiKey: "key" };
  const agent = agentOf({ model, inputProcessors: [contextProcessor("demo", name, { client })] });
  assert.equal((await agent.generate(prompt)).text, answer);
  const requests = await provider.requests(name);
  assert.match(JSON.stringify(requests[1]?.body), /palimpsest:\/\//);
  assert.ok(((await session.get()).counts.reported_tokens ?? 0) > 0);
});
