// Aborted calls of models. A sync that is under way ends with the call, so it cannot reach the server after a later one.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { Agent } from "@mastra/core/agent";
import { Mastra } from "@mastra/core/mastra";
import { generateText, streamText, wrapLanguageModel } from "ai";
import OpenAI from "openai";
import { Palimpsest, type Session } from "palimpsest";
import { contextMiddleware, contextPrepareStep, contextTools, withSession } from "palimpsest/ai-sdk";
import { runMessages } from "palimpsest/anthropic";
import { contextProcessor } from "palimpsest/mastra";
import { runChat, runResponses } from "palimpsest/openai";
import { modelsOf } from "./models.js";
import { startProvider, startServer } from "./world.js";

const server = await startServer();
const provider = await startProvider();
after(() => Promise.all([server.stop(), provider.stop()]));

const models = modelsOf(provider.url);
const openai = new OpenAI({ baseURL: `${provider.url}/v1`, apiKey: "key", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: provider.url, apiKey: "key", maxRetries: 0 });
const prompt = "Why did the build fail?";
const message = { role: "user" as const, content: prompt };

function agentOf(client: Palimpsest, model: string): Agent {
  const inputProcessors = [contextProcessor("demo", model, { client })];
  const fields = { id: "a", name: "A", instructions: "Be brief.", model: models.anthropic(model) };
  const agent = new Agent({ ...fields, inputProcessors });
  new Mastra({ agents: { a: agent }, logger: false });
  return agent;
}

const modelOf = (session: Session, model: string, signal?: AbortSignal) =>
  wrapLanguageModel({ model: models.anthropic(model), middleware: contextMiddleware(session, { signal }) });

type Call = (session: Session, model: string, signal: AbortSignal, client: Palimpsest) => Promise<unknown>;

/** Starts a call of a model with a signal. The promise ends with the call. */
const calls: Record<string, Call> = {
  withSession: async (_, model, abortSignal, client) => {
    const settings = await withSession("demo", model, { model: models.anthropic(model) }, { client });
    return generateText({ ...settings, prompt, abortSignal });
  },
  "the middleware": (session, model, abortSignal) =>
    generateText({ model: modelOf(session, model), prompt, abortSignal }),
  "the middleware with another signal": (session, model, abortSignal) => {
    const { signal } = new AbortController();
    return generateText({ model: modelOf(session, model, signal), prompt, abortSignal });
  },
  "the middleware by its option": (session, model, signal) => {
    const { signal: abortSignal } = new AbortController();
    return generateText({ model: modelOf(session, model, signal), prompt, abortSignal });
  },
  "the middleware in a stream": (session, model, abortSignal) =>
    consumed(streamText({ model: modelOf(session, model), prompt, abortSignal })),
  prepareStep: (session, model, abortSignal) => {
    const prepareStep = contextPrepareStep(session, { signal: abortSignal });
    return generateText({ model: models.anthropic(model), prompt, abortSignal, prepareStep });
  },
  "prepareStep in a stream": (session, model, abortSignal) => {
    const prepareStep = contextPrepareStep(session, { signal: abortSignal });
    return consumed(streamText({ model: models.anthropic(model), prompt, abortSignal, prepareStep }));
  },
  Mastra: (_, model, abortSignal, client) => agentOf(client, model).generate(prompt, { abortSignal }),
  "Mastra in a stream": async (_, model, abortSignal, client) =>
    (await agentOf(client, model).stream(prompt, { abortSignal })).consumeStream(),
  runChat: (session, model, signal) => runChat(openai, session, { model, messages: [message] }, { signal }),
  runResponses: (session, model, signal) =>
    runResponses(openai, session, { model, input: [message] }, { signal }),
  runMessages: (session, model, signal) =>
    runMessages(anthropic, session, { model, max_tokens: 1_000, messages: [message] }, { signal }),
};

async function consumed(result: { consumeStream(): PromiseLike<void> }): Promise<void> {
  await result.consumeStream();
}

for (const [name, start] of Object.entries(calls)) {
  test(`an abort of ${name} ends its sync, and nothing is sent after it`, async () => {
    const stop = new AbortController();
    const paths: string[] = [];
    let ended: Promise<unknown> | undefined;
    // Answers no sync. A request ends by its signal alone.
    const holding: typeof fetch = (input, init) => {
      paths.push(new URL(String(input)).pathname);
      if (!String(input).endsWith(":sync")) return fetch(input, init);
      setTimeout(() => stop.abort(new Error("the user left")), 20);
      const held = new Promise<Response>((_, reject) =>
        init?.signal?.addEventListener("abort", () => reject(init.signal?.reason)),
      );
      ended = held.catch(() => "aborted");
      return held;
    };
    const client = new Palimpsest({ url: server.url, fetch: holding });
    const model = `abort-${Object.keys(calls).indexOf(name)}`;
    await start(client.session("demo", model), model, stop.signal, client).catch(() => {});
    assert.ok(stop.signal.aborted);
    assert.equal(await ended, "aborted");
    const sent = paths.length;
    // Longer than the first delay of a retry.
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(paths.length, sent, paths.join());
    assert.equal(paths.filter((path) => path.endsWith(":sync")).length, 1);
    assert.deepEqual(await provider.requests(model), []);
  });
}

for (const name of ["withSession", "Mastra"]) {
  test(`an abort of ${name} ends the request of its tools, which has its deadline`, async () => {
    const stop = new AbortController();
    const timeouts: (string | null)[] = [];
    const holding: typeof fetch = (_, init) => {
      timeouts.push(new Headers(init?.headers).get("connect-timeout-ms"));
      setTimeout(() => stop.abort(new Error("the user left")), 20);
      return new Promise<Response>((_, reject) =>
        init?.signal?.addEventListener("abort", () => reject(init.signal?.reason)),
      );
    };
    const options = { client: new Palimpsest({ url: server.url, fetch: holding }), timeoutMs: 54_000 };
    const model = models.anthropic(`abort-tools-${name}`);
    const abortSignal = stop.signal;
    if (name === "Mastra") {
      const inputProcessors = [contextProcessor("demo", "abort-tools", options)];
      const agent = new Agent({ id: "a", name: "A", instructions: "Be brief.", model, inputProcessors });
      new Mastra({ agents: { a: agent }, logger: false });
      await agent.generate(prompt, { abortSignal }).catch(() => {});
    } else {
      const settings = { model, abortSignal };
      await assert.rejects(withSession("demo", "abort-tools", settings, options), /the user left/);
      const { signal } = stop;
      await assert.rejects(withSession("demo", "abort-tools", { model }, { ...options, signal }), /left/);
    }
    assert.ok(stop.signal.aborted);
    assert.equal(timeouts.length, 1);
    const timeout = Number(timeouts[0]);
    assert.ok(timeout > 0 && timeout <= 54_000, String(timeout));
  });
}

test("an abort ends the calls of the service's tools", async () => {
  const session = new Palimpsest({ url: server.url }).session("demo", "abort-tools");
  const { SearchTranscript } = await contextTools(session);
  const reason = new Error("the user left");
  const options = { toolCallId: "a", messages: [], context: {}, abortSignal: AbortSignal.abort(reason) };
  await assert.rejects(async () => SearchTranscript?.execute?.({ pattern: "x" }, options), reason);
});
