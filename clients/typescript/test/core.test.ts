// The core on a real server. The file also runs on Deno and Bun.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Palimpsest, PalimpsestError } from "palimpsest";
import { collect, largeLog, startServer } from "./world.js";

const server = await startServer();
const client = new Palimpsest({ url: server.url });
after(() => server.stop());

const tools = [
  {
    type: "function" as const,
    function: { name: "read_log", parameters: { type: "object", properties: {} } },
  },
];
const call = { id: "c1", type: "function" as const, function: { name: "read_log", arguments: "{}" } };
const withLog = [
  { role: "system" as const, content: "Be brief." },
  { role: "user" as const, content: "Why did the build fail?" },
  { role: "assistant" as const, content: null, tool_calls: [call] },
  { role: "tool" as const, tool_call_id: "c1", content: largeLog() },
];

test("a sync stores a large result, and the model reads it back", async () => {
  const session = client.session("demo", "core");
  const body = { model: "gpt-5", messages: withLog, tools, temperature: 0.5 };
  const view = await session.sync(body);
  assert.equal(view.sendable, true);
  assert.equal(view.notSendableReason, undefined);
  assert.equal(view.outcome, "new");
  assert.equal(view.request.temperature, 0.5);
  assert.equal(view.request.tools, tools);
  assert.equal(view.request.messages, view.messages);
  assert.equal(view.messages[0]?.role, "system");
  assert.match(String(view.messages[3]?.content), /palimpsest:\/\/demo\/core/);
  assert.ok(view.tokens.total_tokens < 2_000);
  assert.ok(view.budget.window_tokens > 100_000);
  assert.deepEqual(view.warnings, []);
  assert.equal((await session.sync(body)).outcome, "equal");

  const definitions = await session.tools("openai_chat");
  const names = definitions.map((tool) => tool.function.name);
  assert.ok(names.includes("ReadToolResult"), names.join());
  assert.equal(session.isOwn(call), false);
  const read = {
    id: "c2",
    type: "function" as const,
    function: { name: "ReadToolResult", arguments: '{"tool_use_id":"c1","tail_lines":1}' },
  };
  assert.equal(session.isOwn(read), true);
  const result = await session.runTool(read);
  assert.equal(result.role, "tool");
  assert.equal(result.tool_call_id, "c2");
  assert.match(result.content, /disk full/);
});

test("each warning of a session is logged once", async () => {
  const logged: string[] = [];
  const quiet = new Palimpsest({ url: server.url, logger: { warn: (message) => logged.push(message) } });
  const body = { model: "a-model", messages: [{ role: "user" as const, content: "Hello." }] };
  for (const timeoutMs of [60_000, 70_000]) {
    const view = await quiet.session("demo", "warned").withOptions({ timeoutMs }).sync(body);
    assert.deepEqual(
      view.warnings.map((it) => it.code),
      ["window_assumed"],
    );
  }
  assert.equal(logged.length, 1);
  assert.match(logged[0] ?? "", /projects\/demo\/sessions\/warned: .*window.* \(window_assumed\)$/);
});

test("another conversation under the name of a session reads its own results", async () => {
  const session = client.session("demo", "lanes");
  const title = [{ role: "user" as const, content: "Write a title." }];
  await session.sync({ model: "gpt-5", messages: [{ role: "user", content: "Hello" }], tools });
  const view = await session.sync({ model: "gpt-5", messages: withLog, tools });
  assert.notEqual(view.session, session.name);
  await session.sync({ model: "gpt-5", messages: title });
  const called = { name: "ReadToolResult", arguments: '{"tool_use_id":"c1","tail_lines":1}' };
  const result = await session.runTool({ id: "c2", type: "function" as const, function: called });
  assert.match(result.content, /disk full/);
});

test("calls read the session of their view", async () => {
  const session = client.session("demo", "assigned");
  const view = await session.sync({ model: "gpt-5", messages: withLog, tools });
  const other = await session.sync({
    model: "gpt-5",
    messages: [{ role: "user", content: "Count." }],
    tools,
  });
  assert.notEqual(other.session, session.name);
  session.assignCalls(view, ["c2"]);
  const called = { name: "ReadToolResult", arguments: '{"tool_use_id":"c1","tail_lines":1}' };
  for (const [id, found] of [
    ["c2", true],
    ["c3", false],
  ] as const) {
    const result = await session.runTool({ id, type: "function" as const, function: called });
    assert.equal(result.content.includes("disk full"), found, result.content);
  }
});

test("tools and calls have the format of their provider", async () => {
  const session = client.session("demo", "formats");
  await session.sync({ messages: [{ role: "user", content: "Hello" }] }, { format: "anthropic_messages" });
  const [anthropic] = await session.tools("anthropic_messages");
  assert.equal(anthropic?.input_schema.type, "object");
  const [responses] = await session.tools("openai_responses");
  assert.equal(responses?.type, "function");
  const input = { reference: "none" };
  const block = await session.runTool({ type: "tool_use" as const, id: "a", name: "ReadToolResult", input });
  assert.equal(block.type, "tool_result");
  assert.equal(block.is_error, true);
  const item = { type: "function_call" as const, call_id: "b", name: "ReadToolResult", arguments: "{}" };
  assert.equal((await session.runTool(item)).call_id, "b");
});

test("the definitions of tools are read once per session, and again after a change of its policy", async () => {
  let reads = 0;
  const counting: typeof fetch = (input, init) => {
    if (String(input).includes("/tools")) reads++;
    return fetch(input, init);
  };
  const counted = new Palimpsest({ url: server.url, fetch: counting });
  const namesOf = async (id: string) =>
    (await counted.session("demo", id).toolDefinitions("openai_chat")).map((tool) => tool.name);
  const limited = counted.session("demo", "limited-tools");
  const policy_overrides = { model_tools: { enabled_tools: { tools: ["read_tool_result"] } } };
  await limited.create({ policy_overrides });
  assert.deepEqual(await namesOf("limited-tools"), ["ReadToolResult"]);
  // Another session can have another policy.
  assert.equal((await namesOf("all-tools")).length, 4);
  // A change of the definitions stays in their session.
  const [changed] = await counted.session("demo", "all-tools").tools("openai_chat");
  if (changed) changed.function.name = "changed";
  const [definition] = await counted.session("demo", "all-tools").tools("openai_chat");
  assert.notEqual(definition?.function.name, "changed");
  await namesOf("limited-tools");
  assert.equal(reads, 2);
  await limited.update({ policy_overrides: {} });
  assert.equal((await namesOf("limited-tools")).length, 4);
  assert.equal(reads, 3);
});

test("undo has the option force, for a view that exceeds the limit of a request", async () => {
  const session = client.session("demo", "undo-force");
  const messages = Array.from({ length: 41 }, (_, index) => ({
    role: index % 2 ? "assistant" : "user",
    content: index % 2 ? `answer ${index}${" word".repeat(1_500)}` : `question ${index}`,
  }));
  const target = { window_tokens: 32_000, max_output_tokens: 2_000 };
  await session.sync({ model: "gpt-5", messages }, { target });
  await assert.rejects(session.undo(), { reason: "RESTORE_OVER_BLOCK" });
  const restored = await session.undo({ force: true });
  assert.deepEqual(
    restored?.restored.undone.map((event) => event.kind),
    ["compacted"],
  );
});

test("a compaction shortens the view, and undo and restore reverse it", async () => {
  const session = client.session("demo", "undo");
  const messages = Array.from({ length: 12 }, (_, index) => ({
    role: index % 2 ? ("assistant" as const) : ("user" as const),
    content: `message ${index}${index % 2 ? " word".repeat(1_000) : ""}`,
  }));
  messages.push({ role: "user", content: "Go on." });
  const before = await session.sync({ model: "claude-sonnet-4-5", messages });
  assert.equal(await session.undo(), undefined);
  const { compaction } = await session.compact();
  assert.equal(compaction?.state, "succeeded");
  const compacted = await session.sync({ model: "claude-sonnet-4-5", messages });
  assert.ok(compacted.tokens.total_tokens < before.tokens.total_tokens / 2);
  const restored = await session.undo();
  assert.deepEqual(
    restored?.restored.undone.map((event) => event.kind),
    ["compacted"],
  );
  const after = await session.sync({ model: "claude-sonnet-4-5", messages });
  assert.deepEqual(after.messages, before.messages);
  assert.equal(await session.undo(), undefined);

  await session.compact();
  const planned = await session.restore(before.reply.revision, { dry_run: true });
  assert.equal(planned.restored.undone[0]?.kind, "compacted");
  assert.deepEqual((await session.restore(before.reply.revision)).restored, planned.restored);
  const again = await session.sync({ model: "claude-sonnet-4-5", messages });
  assert.deepEqual(again.messages, before.messages);
});

test("an append adds messages to the transcript, and a rewind removes them from the view", async () => {
  const session = client.session("demo", "append");
  const userMessage = (content: string) => ({
    payload: { format: "openai_chat" as const, json: { role: "user", content } },
  });
  const answer = { role: "assistant", content: "Hello." };
  const first = await session.append([
    userMessage("Hello"),
    { payload: { format: "openai_chat", json: answer } },
  ]);
  assert.equal(first.append.session_created, true);
  assert.deepEqual(
    first.append.messages.map((message) => [message.ordinal, message.outcome]),
    [
      [1, "appended"],
      [2, "appended"],
    ],
  );
  // The same id and content is stored once.
  const id = "01890a5d-ac96-774b-bcce-b302099a8057";
  const outcomes = [];
  for (let repeat = 0; repeat < 2; repeat++) {
    const { append } = await session.append([{ id, ...userMessage("Bye") }]);
    outcomes.push(append.messages[0]?.outcome);
  }
  assert.deepEqual(outcomes, ["appended", "duplicate"]);
  const { revision } = await session.get();
  await assert.rejects(
    session.append([userMessage("x")], { expected_revision: revision - 1 }),
    (error) => error instanceof PalimpsestError && error.code === "ABORTED",
  );

  const { rewound } = await session.rewind({ before_message_id: id });
  assert.deepEqual(rewound.message_ids, [id]);
  const [question, reply] = first.append.messages.map((message) => message.message_id);
  assert.ok(question && reply);
  const planned = await session.rewind({ to_message_id: question, dry_run: true });
  assert.deepEqual(planned.rewound, { to_message_id: question, message_ids: [reply] });
  const shown = (await collect(session.messages())).filter((message) => message.visibility === "visible");
  assert.deepEqual(
    shown.map((message) => message.id),
    [question, reply],
  );
});

test("a session with other options is the same session", async () => {
  const session = client.session("demo", "options");
  const other = session.withOptions({ target: { window_tokens: 50_000 } }).withOptions({ maxRetries: 0 });
  assert.equal(other.name, session.name);
  const messages = [{ role: "user" as const, content: "Hello" }];
  // The tools and the calls of one are those of the other.
  await other.tools("openai_chat");
  const called = { name: "SearchTranscript", arguments: '{"pattern":"disk full"}' };
  const call = { id: "c2", type: "function" as const, function: called };
  assert.equal(session.isOwn(call), true);
  const view = await other.sync({ model: "gpt-5", messages: withLog, tools });
  assert.equal(view.budget.window_tokens, 50_000);
  const target = { window_tokens: 60_000 };
  const wider = await other.sync({ model: "gpt-5", messages: withLog, tools }, { target });
  assert.equal(wider.budget.window_tokens, 60_000);
  const lane = await session.sync({ model: "gpt-5", messages, tools });
  assert.notEqual(lane.session, session.name);
  assert.ok(lane.budget.window_tokens > 100_000);
  session.assignCalls(view, [call.id]);
  assert.match((await other.runTool(call)).content, /disk full/);
});

test("an update requires the expected revision", async () => {
  const session = client.session("demo", "revision");
  const { revision } = await session.create();
  const updated = await session.update({ title: "A" }, { expectedRevision: revision });
  assert.equal(updated.title, "A");
  await assert.rejects(
    session.update({ title: "B" }, { expectedRevision: revision }),
    (error) => error instanceof PalimpsestError && error.code === "ABORTED",
  );
});

test("a rejected prompt gives a shorter view", async () => {
  const session = client.session("demo", "too-long");
  const messages = Array.from({ length: 21 }, (_, index) => ({
    role: index % 2 ? ("assistant" as const) : ("user" as const),
    content: `message ${index} ${"word ".repeat(2_000)}`,
  }));
  const body = { model: "claude-sonnet-4-5", messages };
  const first = await session.sync(body);
  const tooLong = new Error("prompt is too long: 30000 tokens > 15000 maximum");
  const second = await session.sync(body, { tooLong });
  assert.ok(second.tokens.total_tokens < first.tokens.total_tokens, `${second.tokens.total_tokens}`);
  assert.ok(second.messages.length < first.messages.length);
});

test("a view that exceeds the size of a reply is read from a stream", async () => {
  const session = client.session("demo", "large");
  await session.create({ title: "Large", policy_overrides: { limits: { max_reply_bytes: 4_096 } } });
  const content = "word ".repeat(20_000);
  const messages = [
    { role: "system" as const, content: "Be brief." },
    { role: "user" as const, content },
  ];
  const view = await session.sync({ model: "gpt-5", messages });
  assert.equal(view.reply.view_omitted, true);
  assert.equal(view.messages[0]?.content, "Be brief.");
  assert.ok(String(view.messages[1]?.content).startsWith(content.trim()));
  assert.equal(view.messages.length, 2);
});

test("breakpoints of Anthropic's messages move to the view", async () => {
  const session = client.session("demo", "breakpoints");
  const cache_control = { type: "ephemeral" as const };
  const body = {
    model: "claude-sonnet-4-5",
    system: [{ type: "text" as const, text: "Be brief.", cache_control }],
    messages: [{ role: "user" as const, content: [{ type: "text" as const, text: "Hello", cache_control }] }],
  };
  const { request } = await session.sync(body);
  assert.deepEqual(request.messages[0]?.content[0]?.cache_control, cache_control);
  assert.deepEqual(request.system, body.system);
  const asked = await session.sync(
    { model: "claude-sonnet-4-5", system: "Be brief.", messages: [{ role: "user", content: "Hello" }] },
    { cacheBreakpoints: true },
  );
  const requested = JSON.stringify(asked.request);
  // One is at the end of the system prompt, and one at the end of the messages.
  assert.equal(requested.split("cache_control").length, 3, requested);
  const single = await session.sync(
    { model: "claude-sonnet-4-5", system: "Be brief.", messages: [{ role: "user", content: "Hello" }] },
    { cacheBreakpoints: 1 },
  );
  assert.equal(JSON.stringify(single.request).split("cache_control").length, 2);
});

test("thinking stays if the request enables it", async () => {
  const session = client.session("demo", "thinking");
  const thinking = { type: "thinking" as const, thinking: "I see.", signature: "c2ln" };
  const messages = [
    { role: "user" as const, content: "Hello" },
    {
      role: "assistant" as const,
      content: [thinking, { type: "tool_use" as const, id: "a", name: "A", input: {} }],
    },
    { role: "user" as const, content: [{ type: "tool_result" as const, tool_use_id: "a", content: "1" }] },
  ];
  const model = "claude-sonnet-4-5";
  const view = await session.sync({ model, messages, thinking: { type: "enabled", budget_tokens: 2_000 } });
  assert.deepEqual(view.messages[1], messages[1]);
  const off = await session.sync({ model, messages, thinking: { type: "disabled" } });
  assert.equal(JSON.stringify(off.messages).includes("I see."), false);
});

test("a text as the input of Responses becomes an array", async () => {
  const session = client.session("demo", "responses");
  const view = await session.sync({ model: "gpt-5", instructions: "Be brief.", input: "Hello" });
  assert.match(JSON.stringify(view.request.input), /Hello/);
  assert.equal(view.request.instructions, "Be brief.");
});

test("reads return all pages", async () => {
  const session = client.session("demo", "reads");
  const { messages } = { messages: withLog.slice(0, 2) };
  await session.sync({ model: "gpt-5", messages });
  await session.update({ title: "Reads" });
  const listed = await collect(session.messages({ format: "openai_chat", pageSize: 1 }));
  assert.deepEqual(
    listed.map((message) => message.messages[0]?.content),
    ["Why did the build fail?"],
  );
  const hits = await collect(session.search(/BUILD/i));
  assert.match(hits[0]?.snippet ?? "", /build/);
  assert.equal((await collect(session.search("no such text"))).length, 0);
  const events = await collect(session.events({ pageSize: 1 }));
  assert.ok(events.some((event) => event.messages_appended));
  assert.equal((await session.get()).title, "Reads");
  assert.equal((await session.memory()).version, 0);
  const names = (await collect(client.sessions("demo"))).map((entry) => entry.name);
  assert.ok(names.includes(session.name));
  assert.equal(await session.delete(), true);
  assert.equal(await session.delete(), false);
  await assert.rejects(session.get(), (error) => {
    assert.ok(error instanceof PalimpsestError);
    assert.equal(error.reason, "SESSION_NOT_FOUND");
    assert.equal(error.code, "NOT_FOUND");
    assert.equal(error.status, 404);
    assert.equal(error.retryable, false);
    assert.equal(error.metadata.session, session.name);
    return true;
  });
});

test("a search has the flags of its regular expression", async () => {
  const session = client.session("demo", "flags");
  await session.sync({ model: "gpt-5", messages: [{ role: "user", content: "first/line\nlast line" }] });
  for (const [pattern, found] of [
    [/^last/, 0],
    [/^last/m, 1],
    [/first\/line.last/, 0],
    [/first\/line.last/s, 1],
    [/^LAST.*$/dgimu, 1],
    ["first/line", 1],
  ] as const) {
    assert.equal((await collect(session.search(pattern))).length, found, String(pattern));
  }
  for (const flag of ["y", "v"]) {
    await assert.rejects(collect(session.search(new RegExp("last", flag))), TypeError);
  }
});

test("a watch yields recorded and new events until its signal", async () => {
  const session = client.session("demo", "watch");
  const messages = [{ role: "user", content: "Hello" }];
  await session.sync({ model: "gpt-5", messages });
  const stop = new AbortController();
  const kinds: string[] = [];
  for await (const event of session.watch({ afterRevision: 0, signal: stop.signal })) {
    kinds.push(...Object.keys(event));
    if (event.view_served && messages.length === 1) {
      messages.push({ role: "assistant", content: "Hello." }, { role: "user", content: "Bye" });
      await session.sync({ model: "gpt-5", messages });
    } else if (event.view_served) {
      stop.abort();
    }
  }
  assert.equal(kinds.filter((kind) => kind === "session_created").length, 1);
  assert.equal(kinds.filter((kind) => kind === "messages_appended").length, 2);
});
