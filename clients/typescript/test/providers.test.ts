// Runs with the SDKs of OpenAI and Anthropic against the fake provider.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { NotSendableError, Palimpsest, PalimpsestError, type Session } from "palimpsest";
import { runMessages } from "palimpsest/anthropic";
import { runChat, runResponses } from "palimpsest/openai";
import { largeLog, startProvider, startServer, type Turn } from "./world.js";

const server = await startServer();
const provider = await startProvider();
after(() => Promise.all([server.stop(), provider.stop()]));

const client = new Palimpsest({ url: server.url });
const openai = new OpenAI({ baseURL: `${provider.url}/v1`, apiKey: "key", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: provider.url, apiKey: "key", maxRetries: 0 });

const parameters = { type: "object" as const, properties: {}, additionalProperties: false };
const question = "Why did the build fail?";
const answer = "Its disk was full.";
const turns: Turn[] = [
  { calls: [{ name: "read_log" }, { name: "list_files" }], thinking: "I read the log." },
  { calls: [{ name: "SearchTranscript", input: { pattern: "disk full" } }] },
  { text: answer },
];
const runTool = (name: string) => (name === "read_log" ? largeLog() : "Cargo.toml");

type Text = { role: "user" | "assistant"; content: string };

/** A conversation that a compaction can shorten. */
const history = Array.from({ length: 20 }, (_, index): Text => {
  return {
    role: index % 2 ? "assistant" : "user",
    content: index % 2 ? `answer ${index}${" word".repeat(1_000)}` : `question ${index}`,
  };
});

interface Case {
  model: string;
  session: Session;
  onEvent?: ((event: object) => void) | undefined;
  earlier?: Text[];
}

/** A run of each API, with the same shape. */
const apis = {
  async chat({ model, session, onEvent, earlier = [] }: Case) {
    const tool = (name: string) => ({ type: "function" as const, function: { name, parameters } });
    const messages: OpenAI.ChatCompletionMessageParam[] = [...earlier, { role: "user", content: question }];
    const body = { model, messages, tools: [tool("read_log"), tool("list_files")] };
    const { response } = await runChat(openai, session, body, {
      onEvent,
      runTool: (call) => runTool(call.type === "function" ? call.function.name : ""),
    });
    return { text: response.choices[0]?.message.content, length: messages.length };
  },
  async responses({ model, session, onEvent, earlier = [] }: Case) {
    const tool = (name: string) => ({ type: "function" as const, name, parameters, strict: false });
    const input: OpenAI.Responses.ResponseInput = [...earlier, { role: "user", content: question }];
    const body = { model, input, tools: [tool("read_log"), tool("list_files")] };
    const { response } = await runResponses(openai, session, body, {
      onEvent,
      runTool: (call) => runTool(call.name),
    });
    return { text: response.output_text, length: input.length };
  },
  async messages({ model, session, onEvent, earlier = [] }: Case) {
    const tool = (name: string) => ({ name, input_schema: parameters });
    const messages: Anthropic.MessageParam[] = [...earlier, { role: "user", content: question }];
    const body = {
      model,
      messages,
      max_tokens: 4_000,
      thinking: { type: "enabled" as const, budget_tokens: 2_000 },
      tools: [tool("read_log"), tool("list_files")],
    };
    const { response } = await runMessages(anthropic, session, body, {
      onEvent,
      runTool: (call) => runTool(call.name),
    });
    const text = response.content.map((block) => (block.type === "text" ? block.text : "")).join("");
    return { text, length: messages.length };
  },
};

for (const [api, runIt] of Object.entries(apis)) {
  for (const streams of [false, true]) {
    const name = `${api}${streams ? "-stream" : ""}`;
    const model = `claude-${name}`;

    test(`${name}: parallel calls, a stored result, and a read-back tool`, async () => {
      await provider.script(model, turns);
      const events: object[] = [];
      const onEvent = streams ? (event: object) => void events.push(event) : undefined;
      const { text, length } = await runIt({ model, session: client.session("demo", name), onEvent });
      assert.equal(text, answer);
      assert.equal(streams, events.length > 0);
      const requests = await provider.requests(model);
      assert.deepEqual(
        requests.map((request) => request.status),
        [200, 200, 200],
      );
      const second = JSON.stringify(requests[1]?.body);
      assert.match(second, /palimpsest:\/\//);
      assert.ok(!second.includes("step 4999"));
      assert.ok(JSON.stringify(requests[2]?.body).split("disk full").length > 2);
      assert.ok(length >= 6, `${length} entries`);
    });

    test(`${name}: a prompt that is too long is sent again once`, async () => {
      const wording = { chat: "openai", responses: "responses", messages: "anthropic" }[api];
      const long = `${model}+ptl=${wording}+times=1`;
      const session = client.session("demo", `${name}-long`);
      const onEvent = streams ? () => {} : undefined;
      await runIt({ model: long, session, onEvent, earlier: history });
      const requests = await provider.requests(long);
      assert.deepEqual(
        requests.map((request) => request.status),
        // A stream of Responses reports the error in an event.
        [name === "responses-stream" ? 200 : 400, 200],
      );
      const [rejected, accepted] = requests.map((request) => JSON.stringify(request.body).length);
      assert.ok((accepted ?? 0) < (rejected ?? 0), `${rejected}, then ${accepted} bytes`);
    });
  }
}

test("calls of parallel conversations read their own sessions", async () => {
  const search = { calls: [{ name: "SearchTranscript", input: { pattern: "disk full" } }] };
  const start = async (model: string) => {
    await provider.script(model, [search]);
    const session = client.session("demo", model);
    // A subagent has a lane.
    const subagent = async () => {
      const body = {
        model,
        messages: [{ role: "user" as const, content: "Count." }],
        tools: [{ type: "custom" }],
      };
      assert.notEqual((await session.sync(body)).session, session.name);
    };
    return { model, session, subagent };
  };
  const user = { role: "user" as const, content: question };

  const chat = await start("gpt-parallel");
  const read = { id: "c1", type: "function" as const, function: { name: "read_log", arguments: "{}" } };
  const withLog = [
    user,
    { role: "assistant" as const, tool_calls: [read] },
    { role: "tool" as const, tool_call_id: "c1", content: largeLog() },
  ];
  const completion = await chat.session.send(
    { model: chat.model, messages: withLog, tools: await chat.session.tools("openai_chat") },
    (request) => openai.chat.completions.create(request),
  );
  await chat.subagent();
  const [call] = completion.choices[0]?.message.tool_calls ?? [];
  assert.ok(call);
  assert.match((await chat.session.runTool(call)).content, /step 4999.*disk full/);

  const claude = await start("claude-parallel");
  const use = { type: "tool_use" as const, id: "c1", name: "read_log", input: {} };
  const result = { type: "tool_result" as const, tool_use_id: "c1", content: largeLog() };
  const messages = [user, { role: "assistant" as const, content: [use] }, { ...user, content: [result] }];
  const message = await claude.session.send(
    {
      model: claude.model,
      max_tokens: 100,
      messages,
      tools: await claude.session.tools("anthropic_messages"),
    },
    (request) => anthropic.messages.create(request),
  );
  await claude.subagent();
  const block = message.content.find((entry) => entry.type === "tool_use");
  assert.ok(block);
  assert.match((await claude.session.runTool(block)).content, /step 4999.*disk full/);
});

test("calls of a stream read the session of their view, which send passes on", async () => {
  const model = "gpt-stream-parallel";
  await provider.script(model, [{ calls: [{ name: "SearchTranscript", input: { pattern: "disk full" } }] }]);
  const session = client.session("demo", model);
  const read = { id: "c1", type: "function" as const, function: { name: "read_log", arguments: "{}" } };
  const messages: OpenAI.ChatCompletionMessageParam[] = [
    { role: "user", content: question },
    { role: "assistant", tool_calls: [read] },
    { role: "tool", tool_call_id: "c1", content: largeLog() },
  ];
  const tools = await session.tools("openai_chat");
  const body = { model, messages, tools, stream: true as const };
  const { stream, view } = await session.send(body, async (request, view) => ({
    stream: await openai.chat.completions.create(request),
    view,
  }));
  const calls: OpenAI.ChatCompletionMessageFunctionToolCall[] = [];
  for await (const chunk of stream) {
    for (const { id, function: called } of chunk.choices[0]?.delta.tool_calls ?? []) {
      if (id) calls.push({ id, type: "function", function: { name: called?.name ?? "", arguments: "" } });
      const last = calls.at(-1);
      if (last) last.function.arguments += called?.arguments ?? "";
    }
  }
  // A subagent has a lane before the call runs.
  const lane = await session.sync({
    model,
    messages: [{ role: "user", content: "Count." }],
    tools: [{ type: "custom" }],
  });
  assert.notEqual(lane.session, view.session);
  const [call] = calls;
  assert.ok(call);
  session.assignCalls(view, [call.id]);
  assert.match((await session.runTool(call)).content, /step 4999.*disk full/);
});

test("runMessages sets cache breakpoints, and the other runs need none", async () => {
  const turn = { text: answer };
  const sync = { cacheBreakpoints: true };
  const claude = "claude-cached";
  await provider.script(claude, [turn]);
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: question }];
  const body = { model: claude, max_tokens: 100, messages };
  await runMessages(anthropic, client.session("demo", claude), body, { sync });
  const gpt = "gpt-cached";
  await provider.script(gpt, [turn]);
  const chat = { model: gpt, messages: [{ role: "user" as const, content: question }] };
  await runChat(openai, client.session("demo", gpt), chat, { sync });
  const [marked, plain] = await Promise.all([claude, gpt].map((model) => provider.requests(model)));
  assert.match(JSON.stringify(marked?.[0]?.body.messages), /cache_control/);
  assert.doesNotMatch(JSON.stringify(plain?.[0]?.body), /cache_control/);
});

test("an error of the service keeps the results of the caller's tools", async () => {
  const model = "claude-failing";
  await provider.script(model, [
    { calls: [{ name: "read_log" }, { name: "SearchTranscript", input: { pattern: "build" } }] },
    { text: answer },
  ]);
  // The calls name a session that does not exist.
  const failing: typeof fetch = (input, init) =>
    fetch(String(input).replace(/sessions\/(.*:callTool)/, "sessions/no-$1"), init);
  const session = new Palimpsest({ url: server.url, fetch: failing }).session("demo", "failing");
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: question }];
  const body = {
    model,
    max_tokens: 100,
    messages,
    tools: [{ name: "read_log", input_schema: parameters }],
  };
  await runMessages(anthropic, session, body, { runTool: () => "the log" });
  const results = JSON.stringify(messages[2]);
  assert.match(results, /the log/);
  assert.match(results, /SESSION_NOT_FOUND.*"is_error":true/);
});

test("without read-back, the model gets no tools of the service", async () => {
  const model = "no-read-back";
  await provider.script(model, [{ text: answer }]);
  const body = { model, max_tokens: 1_000, messages: [{ role: "user" as const, content: question }] };
  await runMessages(anthropic, client.session("demo", model), body, { readBack: false });
  const requests = await provider.requests(model);
  assert.deepEqual(
    requests.map((request) => request.body.tools),
    [undefined],
  );
});

test("without runTool, the run returns the calls of the caller", async () => {
  const model = "gpt-manual";
  await provider.script(model, [
    { calls: [{ name: "read_log" }, { name: "SearchTranscript", input: { pattern: "build" } }] },
    { text: answer },
  ]);
  const session = client.session("demo", "manual");
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: question }];
  const body = {
    model,
    messages,
    tools: [{ type: "function" as const, function: { name: "read_log", parameters } }],
  };
  const { calls } = await runChat(openai, session, body);
  assert.equal(calls.length, 1);
  assert.equal(messages.length, 3);
  await assert.rejects(runChat(openai, session, body), (error) => {
    assert.ok(error instanceof NotSendableError);
    return error.reason === "open_calls";
  });
  for (const call of calls) messages.push({ role: "tool", tool_call_id: call.id, content: largeLog() });
  const { response } = await runChat(openai, session, body);
  assert.equal(response.choices[0]?.message.content, answer);
});

test("the usage of a response makes the next count exact", async () => {
  const model = "gpt-usage";
  await provider.script(model, [{ text: "Hello." }, { text: "Bye." }]);
  const session = client.session("demo", "usage");
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Hello" }];
  await runChat(openai, session, { model, messages });
  messages.push({ role: "user", content: "Bye" });
  await runChat(openai, session, { model, messages });
  const { tokens } = await session.sync({ model, messages });
  assert.equal(tokens.method, "reported_and_estimated");
});

test("send syncs, checks, and sends a prompt that is too long again", async () => {
  const model = "gpt-send";
  await provider.script(model, [{ text: "Hello." }, { text: "Hello again." }, { text: "Bye." }]);
  const session = client.session("demo", "send");
  const create = (request: OpenAI.ChatCompletionCreateParamsNonStreaming) =>
    openai.chat.completions.create(request);
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "Hello" }];
  await session.send({ model, messages }, create);
  // The caller drops the first response and asks again.
  const { choices } = await session.send({ model, messages }, create);
  messages.push(...choices.map((choice) => choice.message), { role: "user", content: "Bye" });
  await session.send({ model, messages }, create);
  const { counts } = await session.get();
  assert.ok((counts.reported_tokens ?? 0) > 0);

  messages.push({
    role: "assistant",
    tool_calls: [{ id: "a", type: "function", function: { name: "read_log", arguments: "{}" } }],
  });
  await assert.rejects(session.send({ model, messages }, create), NotSendableError);
  assert.equal((await provider.requests(model)).length, 3);

  const long = "gpt-send+ptl=openai+times=1";
  await client.session("demo", "send-long").send({ model: long, messages: history }, create);
  assert.deepEqual(
    (await provider.requests(long)).map((request) => request.status),
    [400, 200],
  );
});

test("send throws the error of the provider if the service cannot shorten the prompt", async () => {
  const model = "claude-send-max-tokens+ptl=anthropic-output";
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: question }];
  const body = { model, max_tokens: 5_000, messages };
  // A second call of the same session meets the service in the same state.
  for (let call = 1; call <= 2; call++) {
    await assert.rejects(
      client.session("demo", "send-max-tokens").send(body, (request) => anthropic.messages.create(request)),
      (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError, String(error));
        assert.match(error.message, /max_tokens.* exceed context limit/);
        assert.ok(error.cause instanceof PalimpsestError);
        return error.cause.reason === "PROMPT_TOO_LONG";
      },
    );
    assert.equal((await provider.requests(model)).length, call);
  }
});
