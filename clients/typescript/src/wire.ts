// The replies of the HTTP API. Field names are those of the API; `GET /openapi.json` describes all of them.

/** The JSON schema of messages, tools and calls. */
export type Format = "anthropic_messages" | "openai_chat" | "openai_responses";

/** The relation of a conversation to the last one of the session. */
export type SyncOutcome =
  | "new"
  | "equal"
  | "extended"
  | "response_replaced"
  | "trimmed"
  | "adopted"
  | "displaced"
  | "rewound";

/** The reason that a view must not be sent to the model. */
export type NotSendableReason = "open_calls" | "ends_with_assistant" | "empty";

/** The time at which a due compaction runs. */
export type CompactionMode = "wait" | "background" | "never";

/** The model that receives the view. */
export interface Target {
  provider?: "anthropic" | "openai" | "bedrock" | "openai_responses";
  model?: string;
  thinking?: boolean;
  window_tokens?: number;
  max_output_tokens?: number;
  input_limit_tokens?: number;
  system_messages?: boolean;
}

/** The token count of a model request. */
export interface TokenReport {
  total_tokens: number;
  method: "reported" | "reported_and_estimated" | "estimated";
  anchor_tokens: number;
  tail_tokens: number;
  removed_tokens: number;
  calibration_factor: number;
  breakdown?: {
    system_tokens: number;
    tools_tokens: number;
    summary_tokens: number;
    messages_tokens: number;
    results_tokens: number;
    attachments_tokens: number;
  };
}

/** The used and free tokens of the context window. */
export interface Budget {
  state: "normal" | "warning" | "critical" | "exhausted";
  model: string;
  window_tokens: number;
  effective_window_tokens: number;
  used_tokens: number;
  warn_at_tokens: number;
  compact_at_tokens: number;
  block_at_tokens: number;
  remaining_tokens: number;
  remaining_percent: number;
  free_tokens: number;
  auto_enabled: boolean;
  auto_paused: boolean;
}

/** A problem that did not fail the call. */
export interface Warning {
  code: string;
  detail: string;
  message_id: string;
}

/** The tokens before and after an action of a level. */
export interface LevelEffect {
  operation_id: string;
  trigger: string;
  before_tokens: number;
  after_tokens: number;
  freed_tokens: number;
  duration?: string;
}

/** The action of one level. */
export interface LevelReport {
  level: "tool_result_budget" | "snip" | "microcompact" | "collapse" | "compaction";
  action: "skipped" | "applied" | "started" | "failed" | "would_apply" | "advised";
  skip_reason?: string;
  effect?: LevelEffect;
  [detail: string]: unknown;
}

/** A position for a cache breakpoint, and the fields to merge into its block. */
export interface CacheBreakpoint {
  position?: { message_index: number; block_index?: number };
  system_block_index?: number;
  merge?: Record<string, unknown>;
  insert?: Record<string, unknown>;
}

/** The reply to a sync. */
export interface SyncReply {
  session: string;
  outcome: SyncOutcome;
  lead_messages: number;
  appended_messages: number;
  keep_messages: number;
  messages: unknown[];
  etag: string;
  view_omitted: boolean;
  view_messages: number;
  view_bytes: number;
  sendable: boolean;
  not_sendable_reason?: NotSendableReason;
  revision: number;
  epoch: number;
  level_reports: LevelReport[];
  tokens: TokenReport;
  budget: Budget;
  warnings: Warning[];
  cache_breakpoints: CacheBreakpoint[];
  /** System messages of the conversation, for a provider that does not accept them in the messages. */
  system?: unknown[];
  /** The value of the field `context_management` of Anthropic's request. */
  context_management?: unknown;
  [field: string]: unknown;
}

/** A tool of the service for the model. */
export interface ToolDefinition {
  tool: "snip" | "read_tool_result" | "read_transcript" | "search_transcript";
  name: string;
  description: string;
  input_schema: Record<string, unknown>;
  definition: Record<string, unknown>;
}

/** A message to append. It has a `payload` or a `message`. */
export interface MessageInput {
  /** A UUID. The same id with the same content is stored once. Default: a new one. */
  id?: string;
  /** The JSON of a provider: a message, an array of messages, or a whole response. */
  payload?: { format: Format; json: unknown };
  /** A typed message: the schema `Message`. */
  message?: Record<string, unknown>;
  /** The schema `MessageMetadata`. */
  metadata?: Record<string, unknown>;
}

/** The part of a reply that all changes have: the state of the session after the call. */
export interface Change {
  tokens: TokenReport;
  budget: Budget;
  revision: number;
  warnings: Warning[];
  [field: string]: unknown;
}

/** The part of a reply that all changes of the view have. */
export interface ViewChange extends Change {
  epoch: number;
}

/** The reply to an append. */
export interface AppendReply extends Change {
  append: {
    messages: {
      input_index: number;
      message_id: string;
      ordinal: number;
      outcome: "appended" | "duplicate" | "re_emission";
      [field: string]: unknown;
    }[];
    session_created: boolean;
  };
  level_reports: LevelReport[];
}

/** The point of a rewind, and other fields of `RewindSessionRequest`. */
export type RewindFields = (
  | { /** The last message that stays. */ to_message_id: string; before_message_id?: never }
  | { /** The first message that is removed. */ before_message_id: string; to_message_id?: never }
) &
  Record<string, unknown>;

/** The reply to a rewind. */
export interface RewindReply extends ViewChange {
  /** The last message that stays, or an empty text, and the removed messages. */
  rewound: { to_message_id: string; message_ids: string[] };
  effect?: LevelEffect;
}

/** The reply to a compaction. */
export interface CompactReply extends ViewChange {
  level_reports: LevelReport[];
  compaction?: {
    compaction_id: string;
    state: string;
    strategy: string;
    summary?: string;
    [field: string]: unknown;
  };
}

/** The reply to a restored view. */
export interface RestoreReply extends ViewChange {
  /** The undone events, latest first. */
  restored: { to_revision: number; undone: { revision: number; kind: EventKind }[] };
  effect?: LevelEffect;
}

/** The running summary of a session. */
export interface SessionMemory {
  state: "disabled" | "not_started" | "template" | "ready" | "behind" | "stale";
  version: number;
  text: string;
  sections: { kind: string; title: string; body: string; tokens: number; truncated: boolean }[];
  tokens: number;
  running: boolean;
  [field: string]: unknown;
}

/** A message of the transcript. */
export interface TranscriptMessage {
  id: string;
  ordinal: number;
  revision: number;
  /** The message in the requested format, usually one object. */
  messages: Record<string, unknown>[];
  metadata: Record<string, unknown>;
  visibility:
    | "visible"
    | "compacted"
    | "collapsed"
    | "snipped"
    | "rewound"
    | "re_emission"
    | "transcript_only"
    | "withdrawn"
    | "unconfirmed";
  turn_id: string;
  tokens: number;
  size_bytes: number;
  [field: string]: unknown;
}

/** A match of a search. */
export interface SearchHit {
  ordinal: number;
  role: string;
  visibility: TranscriptMessage["visibility"];
  snippet: string;
  block?: { message_id: string; block_index: number };
  call?: { call_key: string; tool_use_id: string };
  [field: string]: unknown;
}

/** The kind of an event. It is also the name of the field with the event's content. */
export type EventKind =
  | "session_created"
  | "session_updated"
  | "policy_changed"
  | "messages_appended"
  | "calls_interrupted"
  | "view_served"
  | "level_started"
  | "level_failed"
  | "results_persisted"
  | "content_snipped"
  | "results_cleared"
  | "spans_staged"
  | "spans_collapsed"
  | "compacted"
  | "context_restored"
  | "session_rewound"
  | "memory_update_started"
  | "memory_updated"
  | "memory_update_failed"
  | "working_state_updated"
  | "hook_called"
  | "cache_edits_issued"
  | "summary_prepared";

/** An event of a session. The field with the name of its kind has its content. */
export type SessionEvent = {
  revision: number;
  time: string;
  epoch: number;
  request_id: string;
  /** The credential that caused the event: `key` and the id of an API key, or the subject of a token. */
  credential?: string;
  effect?: LevelEffect;
  context_restored?: RestoreReply["restored"];
} & { [kind in Exclude<EventKind, "context_restored">]?: Record<string, unknown> };

/** One element of a watch. */
export interface WatchElement {
  /** Not set in an element that only updates `revision`. */
  event?: SessionEvent;
  revision: number;
  caught_up: boolean;
}

/** A session. */
export interface SessionInfo {
  name: string;
  title: string;
  state: "empty" | "idle" | "awaiting_results" | "awaiting_model" | "compacting";
  revision: number;
  epoch: number;
  create_time: string;
  update_time: string;
  first_prompt: string;
  attributes: Record<string, string>;
  counts: Record<string, number>;
  budget?: Budget;
  [field: string]: unknown;
}

/** The fields of a session that a caller can set. */
export interface SessionFields {
  title?: string;
  project_path?: string;
  branch?: string;
  attributes?: Record<string, string>;
  hold?: string;
  /** Settings that override those of the project: the schema `Policy`. */
  policy_overrides?: Record<string, unknown>;
}

/** A page of a list. */
export type Page<Name extends string, Entry> = { [name in Name]: Entry[] } & { next_page_token: string };
