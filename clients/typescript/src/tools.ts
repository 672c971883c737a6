// The service's tools for the model, in the formats of the providers.

import type { Format } from "./wire.js";

/** A tool definition of Chat Completions. */
export interface ChatTool {
  type: "function";
  function: { name: string; description: string; parameters: Record<string, unknown> };
}

/** A tool definition of Anthropic Messages. */
export interface AnthropicTool {
  name: string;
  description: string;
  input_schema: { type: "object"; [keyword: string]: unknown };
}

/** A tool definition of Responses. */
export interface ResponsesTool {
  type: "function";
  name: string;
  description: string;
  parameters: Record<string, unknown>;
  strict: boolean | null;
}

/** A tool definition in a format. */
export type ToolOf<F extends Format> = F extends "openai_chat"
  ? ChatTool
  : F extends "anthropic_messages"
    ? AnthropicTool
    : ResponsesTool;

/** A tool call as a provider returned it: an entry of `tool_calls`, a `tool_use` block or a `function_call` item. */
export interface ToolCall {
  type: string;
}

/** The result of a tool call, to append to the conversation. */
export type ToolResultOf<Call extends ToolCall> = Call extends { type: "tool_use" }
  ? { type: "tool_result"; tool_use_id: string; content: string; is_error?: boolean }
  : Call extends { type: "function_call" }
    ? { type: "function_call_output"; call_id: string; output: string }
    : { role: "tool"; tool_call_id: string; content: string };

/** Returns the format of a tool call. */
export function formatOfCall(call: ToolCall): Format {
  if (call.type === "tool_use") return "anthropic_messages";
  return call.type === "function_call" ? "openai_responses" : "openai_chat";
}

/** Returns the id of a tool call. */
export function idOfCall(call: ToolCall): string | undefined {
  const { id, call_id } = call as { id?: string; call_id?: string };
  return call_id ?? id;
}

/** Returns the ids of the calls in a complete response. A stream has none. */
export function callIdsOf(response: unknown): string[] {
  const { choices, content, output } = (response ?? {}) as {
    choices?: { message?: { tool_calls?: ToolCall[] | null } }[];
    content?: ToolCall[];
    output?: ToolCall[];
  };
  const list = <Entry>(entries: Entry[] | undefined) => (Array.isArray(entries) ? entries : []);
  const called = list(choices).flatMap((choice) => choice.message?.tool_calls ?? []);
  return [...called, ...list(content), ...list(output)].flatMap((call) => idOfCall(call) ?? []);
}

/** Returns the name of the called tool. */
export function nameOfCall(call: ToolCall): string | undefined {
  const { name, function: called } = call as { name?: string; function?: { name?: string } };
  return called?.name ?? name;
}
