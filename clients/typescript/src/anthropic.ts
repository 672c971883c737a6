// Runs of agents with the SDK of Anthropic.

import type Anthropic from "@anthropic-ai/sdk";
import { type RunOptions, type RunResult, run } from "./run.js";
import type { Session } from "./session.js";

export type { RunOptions, RunResult } from "./run.js";

type Params = Anthropic.MessageCreateParamsNonStreaming;

/**
 * Runs an agent on Messages until the model calls no tool. Calls of the service's tools are answered. A prompt that is
 * too long is sent again once, shorter. Responses and results are appended to `messages` of the body.
 */
export function runMessages(
  anthropic: Anthropic,
  session: Session,
  body: Params,
  options: RunOptions<Anthropic.ToolUseBlock, Anthropic.MessageStreamEvent> = {},
): Promise<RunResult<Anthropic.Message, Anthropic.ToolUseBlock>> {
  const { signal, onEvent } = options;
  return run<Params, Anthropic.Message, Anthropic.ToolUseBlock, "anthropic_messages">(
    session,
    {
      format: "anthropic_messages",
      body,
      array: body.messages,
      withTools: (tools) => ({ ...body, tools: [...(body.tools ?? []), ...tools] }),
      async send(request) {
        if (!onEvent) return anthropic.messages.create(request, { signal });
        const stream = anthropic.messages.stream({ ...request, stream: true }, { signal });
        for await (const event of stream) onEvent(event);
        return stream.finalMessage();
      },
      messagesOf: ({ role, content }) => [{ role, content }],
      callsOf: (response) => response.content.filter((block) => block.type === "tool_use"),
      resultOf: (call, content, isError) => {
        const result = { type: "tool_result", tool_use_id: call.id, content };
        return isError ? { ...result, is_error: true } : result;
      },
      messagesOfResults: (content) => [{ role: "user", content }],
    },
    options,
  );
}
