// Runs of agents with the SDK of OpenAI.

import type OpenAI from "openai";
import { type RunOptions, type RunResult, run } from "./run.js";
import type { Session } from "./session.js";

export type { RunOptions, RunResult } from "./run.js";

type Chat = OpenAI.ChatCompletionCreateParamsNonStreaming;
type ChatCall = OpenAI.ChatCompletionMessageToolCall;
type Respond = OpenAI.Responses.ResponseCreateParamsNonStreaming & { input: OpenAI.Responses.ResponseInput };
type FunctionCall = OpenAI.Responses.ResponseFunctionToolCall;

/**
 * Runs an agent on Chat Completions until the model calls no tool. Calls of the service's tools are answered. A prompt
 * that is too long is sent again once, shorter. Responses and results are appended to `messages` of the body.
 */
export function runChat(
  openai: OpenAI,
  session: Session,
  body: Chat,
  options: RunOptions<ChatCall, OpenAI.ChatCompletionChunk> = {},
): Promise<RunResult<OpenAI.ChatCompletion, ChatCall>> {
  const { signal, onEvent } = options;
  return run<Chat, OpenAI.ChatCompletion, ChatCall, "openai_chat">(
    session,
    {
      format: "openai_chat",
      body,
      array: body.messages,
      withTools: (tools) => ({ ...body, tools: [...(body.tools ?? []), ...tools] }),
      async send(request) {
        if (!onEvent) return openai.chat.completions.create(request, { signal });
        const usage = { stream_options: { include_usage: true } };
        const stream = openai.chat.completions.stream({ ...usage, ...request, stream: true }, { signal });
        for await (const chunk of stream) onEvent(chunk);
        return stream.finalChatCompletion();
      },
      messagesOf: (response) => response.choices.slice(0, 1).map((choice) => choice.message),
      callsOf: (response) => response.choices[0]?.message.tool_calls ?? [],
      resultOf: (call, content) => ({ role: "tool", tool_call_id: call.id, content }),
      messagesOfResults: (results) => results,
    },
    options,
  );
}

/**
 * Runs an agent on Responses until the model calls no function. Calls of the service's tools are answered. A prompt that
 * is too long is sent again once, shorter. Output items and results are appended to `input` of the body.
 */
export function runResponses(
  openai: OpenAI,
  session: Session,
  body: Respond,
  options: RunOptions<FunctionCall, OpenAI.Responses.ResponseStreamEvent> = {},
): Promise<RunResult<OpenAI.Responses.Response, FunctionCall>> {
  const { signal, onEvent } = options;
  return run<Respond, OpenAI.Responses.Response, FunctionCall, "openai_responses">(
    session,
    {
      format: "openai_responses",
      body,
      array: body.input,
      withTools: (tools) => ({ ...body, tools: [...(body.tools ?? []), ...tools] }),
      async send(request) {
        if (!onEvent) return openai.responses.create(request, { signal });
        return streamed(await openai.responses.create({ ...request, stream: true }, { signal }), onEvent);
      },
      messagesOf: (response) => response.output,
      callsOf: (response) => response.output.filter((item) => item.type === "function_call"),
      resultOf: (call, output) => ({ type: "function_call_output", call_id: call.call_id, output }),
      messagesOfResults: (results) => results,
    },
    options,
  );
}

/** Returns the response at the end of a stream. The stream helper of the SDK does not read failed responses. */
async function streamed(
  events: AsyncIterable<OpenAI.Responses.ResponseStreamEvent>,
  onEvent: (event: OpenAI.Responses.ResponseStreamEvent) => void,
): Promise<OpenAI.Responses.Response> {
  for await (const event of events) {
    onEvent(event);
    if (event.type === "error") throw new Error(`${event.code}: ${event.message}`);
    if (event.type === "response.failed") {
      throw new Error(`${event.response.error?.code}: ${event.response.error?.message}`);
    }
    if (event.type === "response.completed" || event.type === "response.incomplete") {
      const parts = event.response.output.flatMap((item) => (item.type === "message" ? item.content : []));
      const texts = parts.map((part) => (part.type === "output_text" ? part.text : ""));
      return { ...event.response, output_text: texts.join("") };
    }
  }
  throw new Error("The stream ended before the end of the response.");
}
