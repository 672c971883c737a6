// Options of requests, errors, retries, raw responses and other endpoints with OpenAI's SDK.

import OpenAI, { toFile } from "openai";

import { ENDLESS, failed, first, isWhole } from "./anthropic-requests.js";
import type { Cases } from "./case.js";
import { request as chat } from "./openai-chat.js";
import { ANSWER } from "./openai-chat.js";
import { request as responses } from "./openai-responses.js";
import { all, raised, type Run } from "./world.js";

/** The calls of one API. */
interface Api {
  whole: (options?: OpenAI.RequestOptions) => ReturnType<OpenAI["chat"]["completions"]["create"]>;
  streamed: (options?: OpenAI.RequestOptions) => Promise<AsyncIterable<unknown>>;
}

/** Returns the calls of both APIs. `change` replaces fields of the bodies. */
function both(run: Run, client: OpenAI = run.openai, change: object = {}): Api[] {
  const [one, other] = [{ ...chat(run), ...change }, { ...responses(run), ...change }];
  const { completions } = client.chat;
  return [
    {
      whole: (options) => completions.create(one, options),
      streamed: (options) => completions.create({ ...one, stream: true }, options),
    },
    {
      whole: (options) => client.responses.create(other, options) as never,
      streamed: (options) => client.responses.create({ ...other, stream: true }, options),
    },
  ];
}

export const openaiRequests: Cases = {
  "openai-extras": {
    async run(run) {
      const options = { headers: { "x-extra": "one" }, query: { extra: "two" }, idempotencyKey: "three" };
      const results = [];
      for (const api of both(run, run.openai, { user: "someone" })) results.push(await api.whole(options));
      return results;
    },
  },
  "openai-codings": {
    async run(run) {
      const results = [];
      for (const coding of ["gzip", "deflate", "br", "zstd"]) {
        for (const api of both(run)) {
          const turn = { ...ANSWER, pace: { coding } };
          await run.script(run.gpt, [turn, turn]);
          const { data, response } = await api.whole().withResponse();
          results.push([data, response.headers, await all(await api.streamed())]);
        }
      }
      return results;
    },
  },
  "openai-raw-responses": {
    async run(run) {
      const results = [];
      for (const api of both(run)) {
        const { data, response, request_id } = await api.whole().withResponse();
        const raw = await api.whole().asResponse();
        results.push([data, response.status, response.headers, request_id, raw.headers, await raw.text()]);
      }
      return results;
    },
  },
  "openai-retries": {
    async run(run) {
      const results: unknown[] = [];
      for (const api of both(run)) {
        for (const status of [408, 409, 429, 500, 503]) {
          await run.script(run.gpt, [failed(status, { fraction: 10 }), failed(status, { millis: 10 }), ANSWER]);
          results.push(await api.whole());
        }
        await run.script(run.gpt, [failed(429, { millis: 10 }), failed(429, { millis: 10 })]);
        results.push(await raised(api.whole({ maxRetries: 1 })));
      }
      return results;
    },
  },
  "openai-errors": {
    async run(run) {
      const client = run.openai.withOptions({ maxRetries: 0 });
      const results = [];
      for (const api of both(run, client)) {
        for (const status of [400, 401, 403, 404, 409, 422, 429, 500, 503]) {
          await run.script(run.gpt, [failed(status, { seconds: 30 }), failed(status, { seconds: 30 })]);
          results.push(await raised(api.whole()), await raised(api.streamed()));
        }
        await run.script(run.gpt, [{ fault: { html: 502 } }]);
        results.push(await raised(api.whole()));
      }
      for (const change of [{ model: "no-such-model" }, { unknown: 1 }]) {
        for (const api of both(run, client, change)) results.push(await raised(api.whole()));
      }
      const other = both(run, client.withOptions({ apiKey: "invalid" }));
      for (const api of other) results.push(await raised(api.whole()));
      return results;
    },
  },
  "openai-broken-streams": {
    async run(run) {
      const faults = [
        { fault: { error_after_event: 3 } },
        { fault: { failed_after_event: 3 } },
        { fault: { cut_after_event: 3 } },
        { fault: { reset_after_event: 3 } },
        // In one frame, because the SDK stops reading at the broken event.
        { fault: { malformed_after_event: 3 }, pace: { split: "together" } },
      ];
      const results = [];
      for (const api of both(run)) {
        for (const fault of faults) {
          await run.script(run.gpt, [{ ...ANSWER, ...fault }]);
          const events: unknown[] = [];
          const read = async () => {
            for await (const event of await api.streamed()) events.push(event);
            throw new RangeError("the stream ends");
          };
          const error = await raised(read());
          results.push([error, isWhole(fault) ? events : null]);
        }
      }
      return results;
    },
  },
  "openai-aborts": {
    aborts: 4,
    async run(run) {
      const results = [];
      for (const api of both(run)) {
        await run.script(run.gpt, [ENDLESS, ENDLESS]);
        results.push(await first(await api.streamed()));
        const controller = new AbortController();
        const stream = await api.streamed({ signal: controller.signal });
        controller.abort();
        await all(stream);
      }
      return results;
    },
  },
  "openai-files-and-batches": {
    body: null,
    async run(run) {
      const { files, batches } = run.openai;
      const line = { custom_id: "one", method: "POST", url: "/v1/chat/completions", body: chat(run) };
      const input = await toFile(Buffer.from(JSON.stringify(line)), "input.jsonl");
      const file = await files.create({ file: input, purpose: "batch" });
      const created = await batches.create({
        input_file_id: file.id,
        endpoint: "/v1/chat/completions",
        completion_window: "24h",
      });
      const states = [created, await batches.retrieve(created.id), await batches.retrieve(created.id)];
      const output = await files.content(states[2]?.output_file_id ?? "");
      const listed = [await all(batches.list({ limit: 1 })), await all(files.list({ limit: 1 }))];
      const ends = [await batches.cancel(created.id), await files.delete(file.id)];
      return [file, states, await output.text(), listed, ends, await raised(files.retrieve(file.id))];
    },
  },
  "openai-models": {
    body: null,
    async run(run) {
      const { models } = run.openai;
      return [await all(models.list()), await models.retrieve("gpt-fake"), await raised(models.retrieve("none"))];
    },
  },
};
