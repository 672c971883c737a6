// Reads each API of a provider twice, as a stream and as one body, with the SDKs: streams.js MODEL...
//
// Prints one line of JSON per model and API. The SDKs read the address and the key from the environment.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const schema = {
  type: "object" as const,
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const messages = [{ role: "user" as const, content: "What is the weather?" }];
const anthropic = new Anthropic({ maxRetries: 0 });
const openai = new OpenAI({ maxRetries: 0 });

/** The two calls of an API. */
type Calls = [streamed: () => Promise<unknown>, whole: () => Promise<unknown>];

function ofMessages(model: string): Calls {
  const request: Anthropic.MessageCreateParamsNonStreaming = {
    model,
    max_tokens: 4_000,
    thinking: { type: "adaptive" },
    messages,
    tools: [{ name: "weather", input_schema: schema }],
  };
  return [
    () => anthropic.messages.stream(request).finalMessage(),
    () => anthropic.messages.create(request),
  ];
}

function ofChat(model: string): Calls {
  const request: OpenAI.ChatCompletionCreateParamsNonStreaming & { stream?: undefined } = {
    model,
    messages,
    tools: [{ type: "function", function: { name: "weather", parameters: schema, strict: true } }],
  };
  const usage = { include_usage: true };
  return [
    () => openai.chat.completions.stream({ ...request, stream_options: usage }).finalChatCompletion(),
    () => openai.chat.completions.create(request),
  ];
}

function ofResponses(model: string): Calls {
  const request: OpenAI.Responses.ResponseCreateParamsNonStreaming = {
    model,
    input: messages,
    store: false,
    reasoning: { effort: "low", summary: "auto" },
    include: ["reasoning.encrypted_content"],
    tools: [{ type: "function", name: "weather", parameters: schema, strict: true }],
  };
  return [
    () => openai.responses.stream({ ...request, stream: true }).finalResponse(),
    () => openai.responses.create(request),
  ];
}

/** Returns the answer, or the error. */
async function outcome(call: () => Promise<unknown>): Promise<unknown> {
  try {
    return await call();
  } catch (error) {
    // The helper of Responses rejects with the event `error` itself.
    const isError = error instanceof Error;
    return isError
      ? { error: error.constructor.name, text: String(error) }
      : { error: "event", text: JSON.stringify(error) };
  }
}

const apis = { messages: ofMessages, chat: ofChat, responses: ofResponses };
for (const model of process.argv.slice(2)) {
  for (const [api, calls] of Object.entries(apis)) {
    const [stream, body] = calls(model);
    const streamed = await outcome(stream);
    const whole = await outcome(body);
    console.log(JSON.stringify({ model, api, streamed, whole }));
  }
}
