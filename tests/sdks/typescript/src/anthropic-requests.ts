// Options of requests, errors, retries, raw responses and other endpoints with Anthropic's SDK.

import Anthropic, { toFile } from "@anthropic-ai/sdk";

import { ANSWER, request, tools, user } from "./anthropic-messages.js";
import type { Cases } from "./case.js";
import { all, PNG, raised, type Turn } from "./world.js";

/** An answer that fails with a status. */
export function failed(status: number, retry_after: unknown): Turn {
  return { fault: { status: { status, retry_after } } };
}

/** An answer that ends only if the client aborts it. */
export const ENDLESS: Turn = { text: "word ".repeat(4_000), pace: { gap_ms: 1_000, delta_bytes: 20 } };

/**
 * Returns true if the connection of a faulty stream lasts until the end of the stream. When a connection breaks, Node drops
 * the events that the program has not read yet.
 */
export function isWhole({ fault }: { fault: object }): boolean {
  return !("cut_after_event" in fault) && !("reset_after_event" in fault);
}

/** Returns the first event of a stream. */
export async function first<T>(stream: AsyncIterable<T>): Promise<T | undefined> {
  // Leaving the loop aborts the request.
  for await (const event of stream) return structuredClone(event);
  return undefined;
}

export const anthropicRequests: Cases = {
  "count-tokens": {
    async run(run) {
      const body = { model: run.claude, messages: [user(`${run.name}: count`)], system: "Be brief.", tools };
      return run.anthropic.messages.countTokens(body);
    },
  },
  "betas-and-extras": {
    async run(run) {
      const trigger = { type: "input_tokens" as const, value: 30_000 };
      const edits = [{ type: "clear_tool_uses_20250919" as const, trigger }];
      const betas = ["context-management-2025-06-27", "interleaved-thinking-2025-05-14"];
      const extra = { inference_geo: "eu" };
      const body = { ...request(run), betas, context_management: { edits }, ...extra };
      return run.anthropic.beta.messages.create(body, { headers: { "x-extra": "one" }, query: { extra: "two" } });
    },
  },
  codings: {
    async run(run) {
      const results = [];
      for (const coding of ["gzip", "deflate", "br", "zstd"]) {
        const turn = { ...ANSWER, pace: { coding } };
        await run.script(run.claude, [turn, turn]);
        const body = request(run, { messages: [user(`${run.name}: ${coding}`)] });
        const whole = await run.anthropic.messages.create(body).withResponse();
        const streamed = run.anthropic.messages.stream(body);
        const { response } = await streamed.withResponse();
        results.push([whole.data, whole.response.headers, await streamed.finalMessage(), response.headers]);
      }
      return results;
    },
  },
  "raw-responses": {
    async run(run) {
      const { messages } = run.anthropic;
      const { data, response, request_id } = await messages.create(request(run)).withResponse();
      const raw = await messages.create(request(run)).asResponse();
      const streamed = await messages.create({ ...request(run), stream: true }).asResponse();
      const [one, two] = (await messages.create({ ...request(run), stream: true })).tee();
      return [
        [data, response.status, response.headers, request_id],
        [raw.headers, await raw.text()],
        [streamed.headers, await streamed.text()],
        [await all(one), await all(two)],
      ];
    },
  },
  retries: {
    async run(run) {
      const results: unknown[] = [];
      for (const status of [408, 409, 429, 500, 503, 529]) {
        await run.script(run.claude, [failed(status, { fraction: 10 }), failed(status, { millis: 10 }), ANSWER]);
        results.push(await run.anthropic.messages.create(request(run)));
      }
      await run.script(run.claude, [failed(529, { millis: 10 }), ANSWER]);
      results.push(await run.anthropic.messages.stream(request(run)).finalMessage());
      await run.script(run.claude, [failed(429, { millis: 10 }), failed(429, { millis: 10 })]);
      return [results, await raised(run.anthropic.messages.create(request(run), { maxRetries: 1 }))];
    },
  },
  errors: {
    async run(run) {
      const client = run.anthropic.withOptions({ maxRetries: 0 });
      const results = [];
      for (const status of [400, 401, 403, 404, 409, 413, 422, 429, 500, 503, 504, 529]) {
        await run.script(run.claude, [failed(status, { seconds: 30 }), failed(status, { seconds: 30 })]);
        results.push(await raised(client.messages.create(request(run))));
        results.push(await raised(client.messages.stream(request(run)).finalMessage()));
      }
      const changes = [{ max_tokens: 0 }, { model: "no-such-model" }, { unknown: 1 }];
      for (const change of changes) {
        results.push(await raised(client.messages.create({ ...request(run), ...change })));
      }
      const other = client.withOptions({ apiKey: "invalid" });
      results.push(await raised(other.messages.create(request(run))));
      await run.script(run.claude, [{ fault: { html: 502 } }]);
      return [results, await raised(client.messages.create(request(run)))];
    },
  },
  "broken-streams": {
    async run(run) {
      const faults = [
        { fault: { error_after_event: 4 } },
        { fault: { cut_after_event: 4 } },
        { fault: { reset_after_event: 4 } },
        // In one frame, because the SDK stops reading at the broken event.
        { fault: { malformed_after_event: 4 }, pace: { split: "together" } },
      ];
      const results = [];
      for (const fault of faults) {
        await run.script(run.claude, [{ ...ANSWER, ...fault }]);
        const stream = run.anthropic.messages.stream(request(run));
        const seen: unknown[] = [];
        stream.on("streamEvent", (event) => seen.push(structuredClone(event)));
        const error = await raised(stream.finalMessage());
        results.push([error, isWhole(fault) ? seen : null]);
      }
      return results;
    },
  },
  "reset-before-response": {
    // Deno sometimes sends a request again by itself, so the number of the SDK's retries varies.
    onDeno: false,
    async run(run) {
      await run.script(run.claude, [{ fault: "reset" }, { fault: "reset" }, ANSWER]);
      const error = await raised(run.anthropic.messages.create(request(run), { maxRetries: 0 }));
      return [error, await run.anthropic.messages.create(request(run), { maxRetries: 1 })];
    },
  },
  aborts: {
    aborts: 3,
    async run(run) {
      await run.script(run.claude, [ENDLESS, ENDLESS, ENDLESS]);
      const body = request(run, { max_tokens: 8_000 });
      const one = await first(run.anthropic.messages.stream(body));
      const controller = new AbortController();
      const raw = await run.anthropic.messages.create({ ...body, stream: true }, { signal: controller.signal });
      controller.abort();
      const helper = run.anthropic.messages.stream(body);
      await helper.emitted("connect");
      helper.abort();
      await all(raw);
      return [one, await raised(helper.finalMessage())];
    },
  },
  batches: {
    body: null,
    async run(run) {
      const { batches } = run.anthropic.messages;
      const [good, bad] = [request(run, { max_tokens: 100 }), request(run, { max_tokens: 0 })];
      const created = await batches.create({
        requests: [
          { custom_id: "good", params: good },
          { custom_id: "bad", params: bad },
        ],
      });
      const other = await batches.create({ requests: [{ custom_id: "other", params: good }] });
      const states = [created, await batches.retrieve(created.id), await batches.retrieve(created.id)];
      // The address of the results is that of the provider.
      const results = await all(await batches.results(created.id));
      const listed = await all(batches.list({ limit: 1 }));
      const ends = [await batches.cancel(other.id), await batches.delete(created.id)];
      return [states, results, listed, ends, await raised(batches.retrieve("msgbatch_unknown"))];
    },
  },
  files: {
    body: null,
    async run(run) {
      const { files } = run.anthropic;
      const text = await toFile(Buffer.from("Grüße\r\n--no boundary\r\n"), "notes.txt", { type: "text/plain" });
      const uploaded = await files.upload({ file: text });
      await files.upload({ file: await toFile(Buffer.alloc(256_000, "0123456789"), "data.bin") });
      const listed = await all(files.list({ limit: 1 }));
      const known = await files.retrieveMetadata(uploaded.id);
      const content = await files.download(uploaded.id);
      const results = [uploaded, listed, known, await content.text(), await files.delete(uploaded.id)];
      return [results, await raised(files.retrieveMetadata(uploaded.id))];
    },
  },
  "file-in-message": {
    async run(run) {
      const file = await run.anthropic.files.upload({ file: await toFile(Buffer.from("It rains."), "notes.txt") });
      const content = [
        { type: "document" as const, source: { type: "file" as const, file_id: file.id } },
        { type: "image" as const, source: { type: "base64" as const, media_type: "image/png" as const, data: PNG } },
        { type: "text" as const, text: `${run.name}: read it` },
      ];
      const messages = [{ role: "user" as const, content }];
      const body = { ...request(run), messages, betas: ["files-api-2025-04-14"] };
      return [file, await run.anthropic.beta.messages.create(body)];
    },
  },
  models: {
    body: null,
    async run(run) {
      const { models } = run.anthropic;
      const listed = await all(models.list({ limit: 1 }));
      return [listed, await models.retrieve("claude-fake"), await raised(models.retrieve("none"))];
    },
  },
  "options-of-the-client": {
    async run(run) {
      const client = run.anthropic.withOptions({ timeout: 77_000, defaultQuery: { a: "b" } });
      if (!(client instanceof Anthropic)) throw new Error("another class");
      return client.messages.create(request(run), { timeout: 55_000 });
    },
  },
};
