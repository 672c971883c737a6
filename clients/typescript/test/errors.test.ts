// Errors, deadlines and retries. A real server rejects most of the calls. A socket plays the failures of a network.

import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { isTooLong, Palimpsest, PalimpsestError, type Session } from "palimpsest";
import { createKey, startServer } from "./world.js";

const server = await startServer();
const limited = await startServer("[projects.demo.quotas]\nrequests_per_second = 2\n");
after(() => Promise.all([server.stop(), limited.stop()]));

const body = { model: "gpt-5", messages: [{ role: "user", content: "Hello" }] };

/** Counts the requests of a client. */
function counted() {
  const count = { requests: 0 };
  const counting: typeof fetch = (...args) => {
    count.requests++;
    return fetch(...args);
  };
  return { count, fetch: counting };
}

async function failed(call: Promise<unknown>): Promise<PalimpsestError> {
  const error = await call.then(
    () => assert.fail("the call succeeded"),
    (error) => error,
  );
  assert.ok(error instanceof PalimpsestError, String(error));
  return error;
}

test("an exceeded rate is retried after the delay of the server", async () => {
  const { count, fetch } = counted();
  const session = new Palimpsest({ url: limited.url, fetch, maxRetries: 9 }).session("demo", "rate");
  const calls = Array.from({ length: 4 }, () => session.sync(body));
  for (const view of await Promise.all(calls)) assert.equal(view.sendable, true);
  assert.ok(count.requests > 4, `${count.requests} requests`);
  const hasty = new Palimpsest({ url: limited.url, maxRetries: 0 }).session("demo", "rate");
  const errors = await Promise.allSettled(Array.from({ length: 6 }, () => hasty.sync(body)));
  const rejected = errors.find((result) => result.status === "rejected");
  const error = rejected?.reason as PalimpsestError;
  assert.equal(error.reason, "REQUEST_RATE_EXCEEDED");
  assert.equal(error.status, 429);
  assert.ok((error.retryAfter ?? 0) > 0);
});

test("an error that a retry cannot change is not retried", async () => {
  const { count, fetch } = counted();
  const session = new Palimpsest({ url: server.url, fetch }).session("demo", "bad");
  const error = await failed(session.sync(body, { parameters: { no_such_field: 1 } }));
  assert.equal(error.reason, "INVALID_FIELD");
  assert.equal(error.code, "INVALID_ARGUMENT");
  assert.match(JSON.stringify(error.details), /no_such_field/);
  assert.equal(count.requests, 1);
});

test("a lost connection is retried, and an unreachable server is UNAVAILABLE", async () => {
  let failures = 2;
  const flaky: typeof fetch = (...args) =>
    failures-- > 0 ? Promise.reject(new TypeError("fetch failed")) : fetch(...args);
  await new Palimpsest({ url: server.url, fetch: flaky }).session("demo", "flaky").sync(body);
  const unreachable = new Palimpsest({ url: "http://127.0.0.1:1", maxRetries: 1 });
  await failed(unreachable.session("demo", "none").watch().next());
  const error = await failed(unreachable.session("demo", "none").sync(body));
  assert.equal(error.code, "UNAVAILABLE");
  assert.equal(error.reason, "");
  assert.equal(error.status, 0);
});

test("a call is retried 8 times by default", async (context) => {
  let attempts = 0;
  const failing: typeof fetch = async () => {
    attempts++;
    throw new TypeError("fetch failed");
  };
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const session = new Palimpsest({ url: server.url, fetch: failing }).session("demo", "retries");
  let done = false;
  const ended = failed(session.get()).finally(() => {
    done = true;
  });
  while (!done) {
    // Longer than the longest delay with its jitter.
    context.mock.timers.tick(20_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal((await ended).code, "UNAVAILABLE");
  assert.equal(attempts, 9);
});

test("a page of a proxy has a status", async () => {
  const proxy = createServer((_, response) => {
    response.writeHead(503, { "retry-after": "0" }).end("<html>");
  }).listen(0);
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const error = await failed(new Palimpsest({ url, maxRetries: 1 }).session("demo", "none").sync(body));
  assert.equal(error.code, "UNAVAILABLE");
  assert.equal(error.retryAfter, 0);
  proxy.close();
});

test("a watch resumes after a lost connection, without a gap or a repeat", async () => {
  let streams = 0;
  // Each stream ends after its first bytes.
  const breaking: typeof fetch = async (...args) => {
    const response = await fetch(...args);
    if (!String(args[0]).includes(":watch")) return response;
    streams++;
    const reader = response.body?.getReader();
    const chunk = await reader?.read();
    await reader?.cancel();
    return new Response(chunk?.value ?? null);
  };
  const session = new Palimpsest({ url: server.url, fetch: breaking }).session("demo", "watch");
  await session.sync(body);
  const recorded: number[] = [];
  for await (const event of session.events()) recorded.push(event.revision);
  const stop = new AbortController();
  const watched: number[] = [];
  for await (const event of session.watch({ afterRevision: 0, signal: stop.signal })) {
    watched.push(event.revision);
    if (watched.length === recorded.length) {
      // The next stream has no new event.
      if (streams < 3) setTimeout(() => stop.abort(), 500);
      else stop.abort();
    }
  }
  assert.deepEqual(watched, recorded);
  assert.ok(streams > 1, `${streams} streams`);
});

test("a watch that ends without elements fails after its retries", async () => {
  for (const ending of [() => new Response(""), () => Promise.reject(new TypeError("fetch failed"))]) {
    let streams = 0;
    const fetch: typeof globalThis.fetch = async () => {
      streams++;
      return ending();
    };
    const session = new Palimpsest({ url: server.url, fetch, maxRetries: 2 }).session("demo", "watch-end");
    const error = await failed(session.watch().next());
    assert.equal(error.code, "UNAVAILABLE");
    assert.equal(streams, 3);
  }
});

test("a watch resumes after a stream without elements, and after a silent stream", async (context) => {
  let streams = 0;
  const breaking: typeof fetch = async (input, init) => {
    if (!String(input).includes(":watch") || ++streams > 2) return fetch(input, init);
    if (streams === 1) return new Response("{");
    const start = (controller: ReadableStreamDefaultController) =>
      init?.signal?.addEventListener("abort", () => controller.error(init.signal?.reason));
    return new Response(new ReadableStream({ start }));
  };
  const session = new Palimpsest({ url: server.url, fetch: breaking }).session("demo", "watch-silent");
  await session.sync(body);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const first = session.watch({ afterRevision: 0 }).next();
  let done = false;
  const ended = first.finally(() => {
    done = true;
  });
  while (!done) {
    // The third stream sends its elements at once.
    if (streams < 3) context.mock.timers.tick(50_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal((await ended).value?.revision, 1);
  assert.equal(streams, 3);
});

test("a deadline ends a call, and a signal cancels it without a retry", async () => {
  const silent = createServer(() => {}).listen(0);
  const url = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const { count, fetch } = counted();
  const session = new Palimpsest({ url, fetch, maxRetries: 1 }).session("demo", "none");
  const error = await failed(session.sync(body, { timeoutMs: 1 }));
  assert.equal(error.code, "DEADLINE_EXCEEDED");
  assert.equal(count.requests, 1);
  const reason = new Error("the user left");
  const signal = AbortSignal.abort(reason);
  await assert.rejects(session.sync(body, { signal }), reason);
  const stop = new AbortController();
  setTimeout(() => stop.abort(reason), 50);
  await assert.rejects(session.sync(body, { signal: stop.signal }), reason);
  assert.equal(count.requests, 2);
  silent.closeAllConnections();
  silent.close();
});

test("all attempts of a call share its deadline", async () => {
  const timeouts: number[] = [];
  const failing: typeof fetch = async (_, init) => {
    timeouts.push(Number(new Headers(init?.headers).get("connect-timeout-ms")));
    throw new TypeError("fetch failed");
  };
  const options = { url: server.url, fetch: failing, timeoutMs: 1_000, maxRetries: 9 };
  const error = await failed(new Palimpsest(options).session("demo", "none").sync(body));
  assert.equal(error.code, "UNAVAILABLE");
  // The delays double from at least 100 ms, so the fifth attempt would be after the deadline.
  assert.ok(timeouts.length > 1 && timeouts.length <= 4, timeouts.join());
  for (const [index, timeout] of timeouts.entries()) assert.ok(timeout <= 1_000 - 100 * (2 ** index - 1));
});

test("a session with other options has their deadline and retries in all calls", async () => {
  const timeouts: number[] = [];
  const failing: typeof fetch = async (_, init) => {
    timeouts.push(Number(new Headers(init?.headers).get("connect-timeout-ms")));
    throw new TypeError("fetch failed");
  };
  const options = { url: server.url, fetch: failing, timeoutMs: 90_000 };
  const session = new Palimpsest(options).session("demo", "none");
  const calls: ((session: Session) => Promise<unknown>)[] = [
    (it) => it.get(),
    (it) => it.sync(body),
    (it) => it.tools("openai_chat"),
    (it) => it.messages().next(),
    (it) => it.search("x").next(),
  ];
  for (const call of calls) {
    timeouts.length = 0;
    await failed(call(session.withOptions({ timeoutMs: 60_000, maxRetries: 1 })));
    assert.equal(timeouts.length, 2);
    for (const timeout of timeouts) assert.ok(timeout > 0 && timeout <= 60_000, String(timeout));
  }
  // The options of a call and the other options of the session stay.
  timeouts.length = 0;
  const once = session.withOptions({ maxRetries: 0 });
  await failed(once.get({ timeoutMs: 30_000 }));
  await failed(once.get());
  const [ofCall = 0, ofClient = 0] = timeouts;
  assert.equal(timeouts.length, 2);
  assert.ok(ofCall <= 30_000 && ofClient > 60_000, timeouts.join());
  await failed(once.watch().next());
  assert.equal(timeouts.length, 3);
});

test("the deadline of a sync includes the stream of a large view", async () => {
  const silent: typeof fetch = (input, init) => {
    if (!String(input).endsWith(":stream")) return fetch(input, init);
    const start = (controller: ReadableStreamDefaultController) =>
      init?.signal?.addEventListener("abort", () => controller.error(init.signal?.reason));
    return Promise.resolve(new Response(new ReadableStream({ start })));
  };
  const session = new Palimpsest({ url: server.url, fetch: silent }).session("demo", "silent-stream");
  await session.create({ policy_overrides: { limits: { max_reply_bytes: 4_096 } } });
  const messages = [{ role: "user", content: "word ".repeat(20_000) }];
  const error = await failed(session.sync({ model: "gpt-5", messages }, { timeoutMs: 2_000 }));
  assert.equal(error.code, "DEADLINE_EXCEEDED");
});

test("errors of providers for prompts that are too long are recognized", () => {
  for (const [text, expected] of [
    ["prompt is too long: 210000 tokens > 200000 maximum", true],
    ["input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", true],
    ["This model's maximum context length is 8192 tokens. However, your messages resulted in 9000", true],
    ["Your input exceeds the context window of this model.", true],
    ["Input is too long for requested model.", true],
    ["The input token count (9) exceeds the maximum number of tokens allowed (8)", true],
    ["the request exceeds the available context size", true],
    ["messages.0.content: Field required", false],
    ["rate limit exceeded", false],
  ] as const) {
    assert.equal(isTooLong(new Error(text)), expected, text);
    assert.equal(isTooLong(Object.assign(new Error(text), { status: 400 })), expected, text);
    assert.equal(isTooLong(Object.assign(new Error(text), { status: 429 })), false);
  }
  assert.equal(isTooLong({ status: 413 }), true);
  const rejected = { code: "RESOURCE_EXHAUSTED", status: 413 };
  assert.equal(isTooLong(new PalimpsestError("The request is too large.", rejected)), false);
});

test("a URL can be host:port, and can have the path of the API", async () => {
  const { host } = new URL(server.url);
  for (const url of [host, ` ${host}/\n`, `${server.url}/v1`, `${host}/v1/`]) {
    const session = new Palimpsest({ url }).session("demo", "urls");
    assert.equal((await session.sync(body)).sendable, true, url);
    assert.equal((await session.withOptions({ maxRetries: 0 }).sync(body)).sendable, true, url);
  }
  for (const url of ["localhost", "grpc://localhost:50051", "api", ":50051"]) {
    assert.throws(
      () => new Palimpsest({ url }),
      /must begin with http:\/\/ or https:\/\/, or be host:port/,
      url,
    );
  }
});

test("the error of a server that is not Palimpsest has its URL", async (context) => {
  const page = "<html>";
  const openai = { error: { message: "Unknown request URL", type: "invalid_request_error", code: null } };
  const anthropic = { type: "error", error: { type: "not_found_error", message: "Not Found" } };
  for (const answer of [page, JSON.stringify(openai), JSON.stringify(anthropic), "{}", "null"]) {
    for (const [status, text] of [
      [404, "this is no Palimpsest server. Check the URL of the server."],
      [503, "a proxy answered, or this is no Palimpsest server."],
    ] as const) {
      const other = createServer((_, response) => void response.writeHead(status).end(answer)).listen(0);
      context.after(() => other.close());
      const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
      const session = new Palimpsest({ url, maxRetries: 0 }).session("demo", "none");
      const error = await failed(session.sync(body));
      const response = `The response from ${url} has the HTTP status ${status} and no error of Palimpsest`;
      assert.equal(error.message, `${response}: ${text}`);
      assert.equal(error.status, status);
      assert.equal(error.code, status === 404 ? "NOT_FOUND" : "UNAVAILABLE");
    }
  }
});

test("invalid options fail before a request", async () => {
  const client = new Palimpsest({ url: server.url });
  for (const id of ["", ".", "..", "a/b", "a b", "-a", "Ä", "a\n", "a".repeat(129)]) {
    assert.throws(
      () => client.session("demo", id),
      new TypeError(
        `The id ${JSON.stringify(id)} of a session is invalid. Use at most 128 letters, digits, "-", "_" and ".", and ` +
          "begin with a letter or a digit.",
      ),
    );
    assert.throws(() => client.session(id, "none"), /of a project is invalid\. Use at most 64 letters/);
  }
  assert.throws(() => client.sessions("a/b"), TypeError);
  assert.throws(() => client.session("a".repeat(65), "none"), TypeError);
  assert.throws(() => client.session("demo", undefined as never), TypeError);
  const longest = client.session("a".repeat(64), `0-_.${"Z".repeat(124)}`);
  assert.equal((await failed(longest.get())).reason, "SESSION_NOT_FOUND");
  for (const timeoutMs of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
    await assert.rejects(client.session("demo", "none").compact({}, { timeoutMs }), RangeError);
  }
});

test("a key authenticates, and a wrong key does not", async (context) => {
  const file = join(mkdtempSync(join(tmpdir(), "palimpsest-")), "keys.toml");
  const apiKey = createKey(file, "read,write");
  const locked = await startServer(`[auth]\nkeys_file = "${file}"\n`);
  context.after(() => locked.stop());
  const sessionOf = (key: string) => new Palimpsest({ url: locked.url, apiKey: key }).session("demo", "keys");
  assert.equal((await sessionOf(apiKey).sync(body)).sendable, true);
  // A key that was read from a file ends with a line break.
  assert.equal((await sessionOf(` ${apiKey}\r\n`).sync(body)).sendable, true);
  for (const key of [`${apiKey}\nx`, `${apiKey}\u00e4`]) {
    assert.throws(
      () => sessionOf(key),
      (error: Error) => {
        assert.match(error.message, /Check `apiKey` or PALIMPSEST_API_KEY/);
        return !error.message.includes(apiKey);
      },
    );
  }
  assert.equal((await failed(sessionOf("wrong").sync(body))).reason, "UNAUTHENTICATED");
});

test("a body without an array is a TypeError", async () => {
  const session = new Palimpsest({ url: server.url }).session("demo", "none");
  await assert.rejects(session.sync({ model: "gpt-5", instructions: "Be brief." }), TypeError);
});
