// The Responses API with OpenAI's SDK.

import type OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { toResponseInputItems } from "openai/lib/responses/ResponseInputItems";

import { Weather } from "./anthropic-messages.js";
import type { Cases } from "./case.js";
import { ANSWER, CALLS, parameters } from "./openai-chat.js";
import { all, linesOf, PDF, PNG, type Run } from "./world.js";

type Request = OpenAI.Responses.ResponseCreateParamsNonStreaming & { stream?: undefined };
type Input = OpenAI.Responses.ResponseInput;

const tools: OpenAI.Responses.Tool[] = [{ type: "function", name: "weather", parameters, strict: true }];
const reasoning = { effort: "low" as const, summary: "auto" as const };
const include: OpenAI.Responses.ResponseIncludable[] = ["reasoning.encrypted_content"];

export function request(run: Run, changes: Partial<Request> = {}): Request {
  return { model: run.gpt, input: [{ role: "user", content: `${run.name}: hello` }], store: false, ...changes };
}

/** Returns the output of a response as input, and the results of its calls. */
function next(response: OpenAI.Responses.Response, output: (input: Record<string, string>) => string): Input {
  const calls = response.output.filter((item) => item.type === "function_call");
  const results = calls.map((call) => ({
    type: "function_call_output" as const,
    call_id: call.call_id,
    output: output(JSON.parse(call.arguments)),
  }));
  // Removes the parsed arguments, which the stream helper adds and the API rejects.
  return [...toResponseInputItems(response.output), ...results];
}

export const openaiResponses: Cases = {
  "responses-create": {
    async run(run) {
      await run.script(run.gpt, [ANSWER]);
      const options = { instructions: "Be brief.", max_output_tokens: 500, prompt_cache_key: "key" };
      return run.openai.responses.create(request(run, { input: `${run.name}: hello`, ...options }));
    },
  },
  "responses-create-stream": {
    async run(run) {
      await run.script(run.gpt, [{ ...CALLS, thinking: "Let me see." }]);
      return all(await run.openai.responses.create({ ...request(run, { tools, reasoning }), stream: true }));
    },
  },
  "responses-stream": {
    async run(run) {
      await run.script(run.gpt, [{ ...CALLS, thinking: "Let me see.", pace: { delta_bytes: 3 } }]);
      const stream = run.openai.responses.stream({ ...request(run, { tools, reasoning }), stream: true });
      return [await all(stream), await stream.finalResponse()];
    },
  },
  "responses-turns": {
    async run(run) {
      const turns = [{ ...CALLS, thinking: "I need the tool." }, { ...ANSWER, thinking: "Now I know." }, ANSWER];
      await run.script(run.gpt, turns);
      const input: Input = [{ role: "user", content: `${run.name}: weather?` }];
      const responses = [];
      for (let turn = 0; turn < 3; turn++) {
        // The provider verifies the encrypted reasoning.
        const response = await run.openai.responses.create(request(run, { input, tools, reasoning, include }));
        responses.push(response);
        input.push(...next(response, () => "rain"));
        if (turn === 1) input.push({ role: "user", content: "And then?" });
      }
      return responses;
    },
  },
  "responses-previous": {
    // The provider stores the first response.
    body: "stateful",
    async run(run) {
      const { responses } = run.openai;
      const one = await responses.create(request(run, { store: true }));
      const body = request(run, { input: "And then?", previous_response_id: one.id, store: true });
      return [one, await responses.create(body), await responses.stream({ ...body, stream: true }).finalResponse()];
    },
  },
  "responses-parse": {
    async run(run) {
      const turn = { text: '{"city": "Zürich", "degrees": 21.5}' };
      await run.script(run.gpt, [turn, turn]);
      const text = { format: zodTextFormat(Weather, "weather") };
      const parsed = await run.openai.responses.parse({ ...request(run), text });
      if (parsed.output_parsed?.degrees !== 21.5) throw new Error("not parsed");
      const stream = run.openai.responses.stream({ ...request(run), text, stream: true });
      return [parsed, await all(stream), await stream.finalResponse()];
    },
  },
  "responses-contents": {
    async run(run) {
      const content: OpenAI.Responses.ResponseInputContent[] = [
        { type: "input_image", image_url: `data:image/png;base64,${PNG}`, detail: "auto" },
        { type: "input_image", image_url: "https://example.com/cat.jpg", detail: "low" },
        { type: "input_file", filename: "a.pdf", file_data: `data:application/pdf;base64,${PDF}` },
        { type: "input_text", text: `${run.name}: compare` },
      ];
      return run.openai.responses.create(request(run, { input: [{ role: "user", content }] }));
    },
  },
  "responses-managed": {
    body: "managed",
    async run(run) {
      await run.scriptLong(run.gpt);
      const properties = { command: { type: "string" } };
      const schema = { type: "object", properties, required: ["command"] };
      const bash = { type: "function" as const, name: "bash", parameters: schema, strict: false };
      const input: Input = [{ role: "user", content: `${run.name}: run all rounds` }];
      const responses = [];
      for (;;) {
        const body = request(run, { input, tools: [bash], reasoning, include });
        const response = await run.openai.responses.stream({ ...body, stream: true }).finalResponse();
        responses.push(response);
        if (!response.output.some((item) => item.type === "function_call")) return responses;
        input.push(...next(response, ({ command = "" }) => linesOf(command)));
      }
    },
  },
  "responses-compact": {
    body: null,
    async run(run) {
      return run.openai.responses.compact({ model: run.gpt, input: `${run.name}: hello` });
    },
  },
};
