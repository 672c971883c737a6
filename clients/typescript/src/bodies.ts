// The bodies of model requests: their types, their format and their messages.

import type { Format } from "./wire.js";

/** A string. The named values keep their literal type in a body that is written inline. */
type Word =
  | "user"
  | "assistant"
  | "system"
  | "developer"
  | "tool"
  | "text"
  | "image"
  | "image_url"
  | "input_text"
  | "tool_use"
  | "tool_result"
  | "function"
  | "function_call"
  | "function_call_output"
  | "message"
  | "object"
  | "ephemeral"
  | "enabled"
  | (string & {});

interface Block {
  type?: Word;
  cache_control?: { type: Word } | null | undefined;
}

interface Fields {
  model?: Word | undefined;
  system?: string | readonly Block[] | undefined;
  stream?: boolean | null | undefined;
  tools?:
    | readonly { type?: Word | null; input_schema?: { type?: Word }; cache_control?: { type: Word } | null }[]
    | null;
  thinking?: { type?: Word };
  tool_choice?: Word | object | null | undefined;
}

/** One message of a body. */
interface Message {
  role?: Word;
  type?: Word | null | undefined;
  content?: string | readonly Block[] | object | null | undefined;
  tool_calls?: readonly Block[] | null | undefined;
}

/** A body with `messages`: Anthropic Messages or OpenAI Chat Completions. */
export interface MessagesBody extends Fields {
  messages: readonly Message[];
}

/** A body with `input`: OpenAI Responses. */
export interface InputBody extends Fields {
  messages?: undefined;
  input?: string | readonly Message[] | undefined;
  instructions?: string | null | undefined;
}

/** The body of a model request. */
export type Body = MessagesBody | InputBody;

/** The items of a text input, which have no type of their own. */
// biome-ignore lint/suspicious/noExplicitAny: the items fit the types of any SDK
type Items = any[];

/** The messages of a body. */
export type MessagesOf<B extends Body> = B extends { messages: infer Messages }
  ? Messages
  : B extends { input?: infer Input }
    ? [Exclude<Input, string | undefined>] extends [never]
      ? Items
      : Exclude<Input, string | undefined>
    : never;

/** The body with other messages. A text as `input` becomes an array. */
export type RequestOf<B extends Body> = B extends { input: string }
  ? Omit<B, "input"> & { input: MessagesOf<B> }
  : B;

/** A loosely typed body, for reading. */
export type AnyBody = Record<string, unknown> & { messages?: unknown[]; input?: unknown };

interface Row {
  role?: string;
  type?: string;
  content?: unknown;
  tool_calls?: unknown;
}

/** Returns the format of a body. Arrays of plain text are equal in both formats with `messages`. */
export function formatOf(body: Body): Format {
  const { messages, system, tools, model } = body as AnyBody;
  if (!messages) return "openai_responses";
  if (system !== undefined) return "anthropic_messages";
  for (const tool of (tools ?? []) as object[]) {
    if ("input_schema" in tool) return "anthropic_messages";
    if ("function" in tool) return "openai_chat";
  }
  const rows = messages as Row[];
  const isChat = (row: Row, index: number) =>
    row.tool_calls !== undefined ||
    ["tool", "function", "developer"].includes(row.role ?? "") ||
    (row.role === "system" && index === 0);
  if (rows.some(isChat)) return "openai_chat";
  const types = rows.flatMap((row) =>
    Array.isArray(row.content) ? row.content.map((block) => block.type) : [],
  );
  if (types.some((type) => ["image_url", "input_audio", "file", "refusal"].includes(type)))
    return "openai_chat";
  if (types.some((type) => type !== "text")) return "anthropic_messages";
  return String(model ?? "").includes("claude") ? "anthropic_messages" : "openai_chat";
}

/** Returns the fields of a body that the server reads. */
export function syncedFields(body: Body): AnyBody {
  const { messages, input, system, instructions, tools, model } = body as AnyBody;
  const items = typeof input === "string" ? [{ role: "user", content: input }] : input;
  if (!Array.isArray(messages ?? items)) throw new TypeError("The body has neither `messages` nor `input`.");
  return { messages, input: items, system, instructions, tools, model } as AnyBody;
}
