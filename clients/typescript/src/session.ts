// One session: the conversation of one agent.

import type { Attempts } from "./attempts.js";
import { type Body, formatOf, type RequestOf, syncedFields } from "./bodies.js";
import { breakpointOptions } from "./cache.js";
import { PalimpsestError } from "./errors.js";
import { type CallOptions, type Query, type RetryOptions, requestId, type Transport } from "./http.js";
import { patternOf } from "./pattern.js";
import { type SendOptions, send } from "./send.js";
import { SessionState } from "./state.js";
import { textOf } from "./too-long.js";
import {
  formatOfCall,
  idOfCall,
  nameOfCall,
  type ToolCall,
  type ToolOf,
  type ToolResultOf,
} from "./tools.js";
import { type View, viewOf } from "./view.js";
import type {
  AppendReply,
  CompactionMode,
  CompactReply,
  EventKind,
  Format,
  MessageInput,
  Page,
  RestoreReply,
  RewindFields,
  RewindReply,
  SearchHit,
  SessionEvent,
  SessionFields,
  SessionInfo,
  SessionMemory,
  SyncReply,
  Target,
  ToolDefinition,
  TranscriptMessage,
  WatchElement,
} from "./wire.js";

/** Options of a sync. */
export interface SyncOptions extends CallOptions {
  /** The format of the body. Default: detected from the body. */
  format?: Format;
  /** The error of the provider that rejected the last view as too long. The new view is shorter. */
  tooLong?: unknown;
  /** The body of the model's last response, with its usage. Token counts are then exact up to the response. */
  lastResponse?: object | undefined;
  /** The time at which a due compaction runs. Default: `wait`, within the call. */
  compaction?: CompactionMode;
  /**
   * If true, the service places cache breakpoints in the request, for Anthropic. A number from 1 to 4 is their maximum.
   * Default: the service places breakpoints only if the messages contain breakpoints.
   */
  cacheBreakpoints?: boolean | number;
  /** Fields of the target. Default: the model of the body. */
  target?: Target;
  /** If true, nothing is written. */
  dryRun?: boolean;
  /** Further fields of `SyncContextRequest`, with the names of the API. */
  parameters?: Record<string, unknown>;
}

/** Options of all calls of a session. Options of a call take precedence. */
export interface SessionDefaults extends RetryOptions {
  /** Fields of the target of each sync. */
  target?: Target | undefined;
}

/** Options of a list. All entries are read page by page. */
export interface ListOptions extends CallOptions {
  /** If true, the latest entry is first. */
  descending?: boolean;
  /** The size of a page. Default: that of the server. */
  pageSize?: number;
}

/** Options of a watch. */
export interface WatchOptions {
  signal?: AbortSignal;
  /** The watch begins after this revision. 0 begins with the first event. Default: new events only. */
  afterRevision?: number | undefined;
  kinds?: EventKind[];
}

const PROVIDERS = {
  anthropic_messages: "anthropic",
  openai_chat: "openai",
  openai_responses: "openai_responses",
} as const satisfies Record<Format, Target["provider"]>;

/** The kinds of events that `undo` reverses. */
const UNDOABLE: EventKind[] = ["compacted", "content_snipped", "results_cleared", "spans_collapsed"];

/** A session. The first sync creates it. */
export class Session {
  /** The resource name, `projects/{project}/sessions/{session}`. */
  readonly name: string;
  readonly #project: string;
  readonly #id: string;
  readonly #transport: Transport;
  readonly #path: string;
  readonly #target: Target;
  readonly #state: SessionState;

  /** Use `Palimpsest.session`. */
  constructor(
    transport: Transport,
    project: string,
    session: string,
    target: Target = {},
    state?: SessionState,
  ) {
    this.#transport = transport;
    this.name = `projects/${project}/sessions/${session}`;
    this.#project = project;
    this.#id = session;
    this.#path = `${sessionsPath(project)}/${checkedId("session", session)}`;
    this.#target = target;
    this.#state = state ?? new SessionState(this.#path);
  }

  /** Returns the same session with other options of its calls, such as another deadline. Nothing is sent. */
  withOptions({ target, ...options }: SessionDefaults): Session {
    const transport = this.#transport.withOptions(options);
    return new Session(transport, this.#project, this.#id, { ...this.#target, ...target }, this.#state);
  }

  /**
   * Sends the body of the next model request with the whole conversation, and returns the view: the messages to send
   * instead, also as the same body. A repeat is safe.
   */
  async sync<B extends Body>(body: B, options: SyncOptions = {}): Promise<View<B>> {
    const format = options.format ?? formatOf(body);
    const fields = syncedFields(body);
    const isAnthropic = format === "anthropic_messages";
    const breakpoints = breakpointOptions(fields, options.cacheBreakpoints);
    const thinking = (body as { thinking?: { type?: string } }).thinking;
    const palimpsest = {
      format,
      target: {
        provider: PROVIDERS[format],
        model: body.model,
        thinking: thinking ? thinking.type !== "disabled" : undefined,
        ...this.#target,
        ...options.target,
      },
      compaction_mode: options.compaction,
      dry_run: options.dryRun,
      cache_breakpoints: isAnthropic ? breakpoints : undefined,
      last_response: options.lastResponse && { format, json: options.lastResponse },
      prompt_too_long: options.tooLong === undefined ? undefined : { error_text: textOf(options.tooLong) },
      ...options.parameters,
    };
    const request = { method: "POST", path: `${this.#path}:sync`, body: { ...fields, palimpsest } } as const;
    const attempts = this.#transport.attempts(options);
    const reply = await this.#transport.call<SyncReply>(request, options, attempts);
    const path = pathOf(reply.session);
    // A side request has no tools, and the calls of a conversation in a lane read the results of the lane.
    if ((fields.tools as unknown[] | undefined)?.length) this.#state.toolPath = path;
    const held = fields.messages ?? (fields.input as unknown[]);
    const messages = reply.view_omitted ? await this.#readView(path, reply, held, attempts) : reply.messages;
    this.#transport.warningLog.log(reply);
    return viewOf(body, reply, messages);
  }

  /**
   * Syncs a body and sends the request of its view with `call`, a function that calls the provider. The second argument of
   * `call` is the view. If the provider rejects the request as too long, a shorter one is sent, once. If no level can
   * shorten it, the error of the provider is thrown, with that of the service as its `cause`. Throws
   * `NotSendableError` instead of sending a request that the provider would reject, for example because a tool call has no
   * result.
   */
  send<B extends Body, Response>(
    body: B,
    call: (request: RequestOf<B>, view: View<B>) => PromiseLike<Response>,
    options: SendOptions = {},
  ): Promise<Response> {
    return send(this, body, call, options);
  }

  /** Returns the definitions of the service's tools, for `tools` of the model request. See `toolDefinitions`. */
  async tools<F extends Format>(format: F, options?: CallOptions): Promise<ToolOf<F>[]> {
    const tools = await this.toolDefinitions(format, options);
    return tools.map((tool) => tool.definition as unknown as ToolOf<F>);
  }

  /**
   * Returns the service's tools with their names and schemas. A session reads them once. The client keeps them for five
   * minutes, for a session that is opened again by its name.
   */
  async toolDefinitions(format: Format, options?: CallOptions): Promise<ToolDefinition[]> {
    const kept = this.#transport.definitions;
    let tools = this.#state.listed.get(format) ?? kept.get(this.#path, format);
    if (!tools) {
      ({ tools } = await this.#get<{ tools: ToolDefinition[] }>("/tools", { format }, options));
      kept.set(this.#path, format, tools);
    }
    this.#state.listed.set(format, tools);
    for (const tool of tools) this.#state.ownNames.add(tool.name);
    return tools;
  }

  /** Returns true if a tool call is one of the service's tools, as `tools` returned them. */
  isOwn(call: ToolCall): boolean {
    return this.#state.ownNames.has(nameOfCall(call) ?? "");
  }

  /**
   * Lets `runTool` read the session of a view, for the calls with these ids. `send`, the runs and the middleware do this
   * for each complete response. The last 256 ids are kept.
   */
  assignCalls(view: Pick<View, "session">, ids: Iterable<string>): void {
    for (const id of ids) this.#state.setPathOfCall(id, pathOf(view.session));
  }

  /**
   * Runs a call of a service's tool and returns the result to append to the conversation. The call reads the session of
   * its response, see `assignCalls`, or else the session that took the last body with tools.
   */
  async runTool<Call extends ToolCall>(call: Call, options?: CallOptions): Promise<ToolResultOf<Call>> {
    const payload = { format: formatOfCall(call), json: call };
    const body = { payload, request_id: requestId() };
    const path = this.#state.pathOfCall(idOfCall(call) ?? "");
    const request = { method: "POST", path: `${path}:callTool`, body } as const;
    return (await this.#transport.call<{ tool_result: ToolResultOf<Call> }>(request, options)).tool_result;
  }

  /**
   * Appends messages without a view. An agent needs no append, because `sync` appends the new messages of a conversation.
   * `parameters` are the other fields of `AppendMessagesRequest`.
   */
  append(
    messages: readonly MessageInput[],
    parameters: Record<string, unknown> = {},
    options?: CallOptions,
  ): Promise<AppendReply> {
    return this.#post(":append", { request_id: requestId(), ...parameters, messages }, options);
  }

  /**
   * Removes the last messages from the view: those after `to_message_id`, or those from `before_message_id` on.
   * `parameters` are one of these fields, and other fields of `RewindSessionRequest`.
   */
  rewind(parameters: RewindFields, options?: CallOptions): Promise<RewindReply> {
    return this.#post(":rewind", { request_id: requestId(), ...parameters }, options);
  }

  /** Replaces old messages of the view by a summary. `parameters` are the fields of `CompactRequest`. */
  compact(parameters: Record<string, unknown> = {}, options?: CallOptions): Promise<CompactReply> {
    return this.#post(":compact", { request_id: requestId(), ...parameters }, options);
  }

  /**
   * Reverses the last compaction, clear, snip or collapse of the view. A repeat reverses the one before. Returns nothing
   * if nothing is left to reverse. Fails with `RESTORE_OVER_BLOCK` if the view would reach the block threshold of its budget,
   * unless `force` is true.
   */
  async undo(options: CallOptions & { force?: boolean | undefined } = {}): Promise<RestoreReply | undefined> {
    const { force, ...call } = options;
    const to = await this.#revisionBeforeLastChange(call);
    return to === undefined ? undefined : this.restore(to, { force }, call);
  }

  /** Restores the view of a revision. `parameters` are the other fields of `RestoreContextRequest`. */
  restore(
    toRevision: number,
    parameters: Record<string, unknown> = {},
    options?: CallOptions,
  ): Promise<RestoreReply> {
    const body = { request_id: requestId(), ...parameters, to_revision: toRevision };
    return this.#post(":restore", body, options);
  }

  /** Returns the session memory, the running summary of the session. */
  async memory(options?: CallOptions): Promise<SessionMemory> {
    return (await this.#get<{ memory: SessionMemory }>("/memory", {}, options)).memory;
  }

  /** Returns all messages of the transcript, also those that the view no longer shows. */
  messages(options: ListOptions & { format?: Format } = {}): AsyncGenerator<TranscriptMessage, void, void> {
    return this.#list("messages", "/messages", options, { format: options.format });
  }

  /**
   * Searches the transcript for a text, or for a regular expression in the syntax of RE2. The flags `i`, `m` and `s`
   * apply. The flags `d`, `g` and `u` change nothing, and others throw a `TypeError`.
   */
  async *search(pattern: string | RegExp, options: ListOptions = {}): AsyncGenerator<SearchHit, void, void> {
    const fields = patternOf(pattern);
    let token: string | undefined;
    do {
      const body = {
        pattern: fields,
        descending: options.descending,
        page_size: options.pageSize,
        page_token: token,
      };
      const page = await this.#post<Page<"hits", SearchHit>>("/messages:search", body, options);
      yield* page.hits;
      token = page.next_page_token;
    } while (token);
  }

  /** Returns the recorded events. */
  events(
    options: ListOptions & { afterRevision?: number; kinds?: EventKind[] } = {},
  ): AsyncGenerator<SessionEvent, void, void> {
    const query = { after_revision: options.afterRevision, kinds: options.kinds };
    return this.#list("events", "/events", options, query);
  }

  /**
   * Yields events as they are recorded. After a lost connection, the watch resumes without a gap. Throws if the server
   * cannot be reached again within the retries of the client.
   */
  async *watch(options: WatchOptions = {}): AsyncGenerator<SessionEvent, void, void> {
    const { signal, kinds } = options;
    let revision = options.afterRevision;
    // A resumed stream can repeat an event. Two events of one kind have different revisions.
    const latest = new Map<string, number>();
    // Retries and their deadline count from the first failure after an element.
    let attempts: Attempts | undefined;
    for (;;) {
      const query = { after_revision: revision, kinds };
      const request = { method: "GET", path: `${this.#path}/events:watch`, query } as const;
      let failed: unknown = new PalimpsestError("The watch ended.", { code: "UNAVAILABLE" });
      try {
        for await (const element of this.#transport.watch<WatchElement>(request, signal)) {
          attempts = undefined;
          revision = element.revision;
          if (!element.event) continue;
          const kind = kindOf(element.event);
          if (element.event.revision <= (latest.get(kind) ?? 0)) continue;
          latest.set(kind, element.event.revision);
          yield element.event;
        }
      } catch (error) {
        failed = error;
      }
      try {
        attempts ??= this.#transport.attempts({ signal });
        if (!signal?.aborted) await attempts.waitAfter(failed);
      } catch (error) {
        if (!signal?.aborted) throw error;
      }
      if (signal?.aborted) return;
    }
  }

  /** Creates the session with fields such as a policy. Fails with `SESSION_EXISTS` if it exists. */
  async create(fields: SessionFields = {}, options?: CallOptions): Promise<SessionInfo> {
    const path = this.#path.slice(0, this.#path.lastIndexOf("/"));
    const body = { session_id: this.#id, session: fields, request_id: requestId() };
    const request = { method: "POST", path, body } as const;
    return this.#changed(this.#transport.call<{ session: SessionInfo }>(request, options));
  }

  /** Returns the session, with its policy, budget and counts. */
  async get(options?: CallOptions): Promise<SessionInfo> {
    return (await this.#get<{ session: SessionInfo }>("", {}, options)).session;
  }

  /** Changes the given fields of the session. Fails with `ABORTED` if the session does not have `expectedRevision`. */
  async update(
    fields: SessionFields,
    options: CallOptions & { expectedRevision?: number } = {},
  ): Promise<SessionInfo> {
    const body = {
      session: fields,
      update_mask: Object.keys(fields).join(","),
      expected_revision: options.expectedRevision,
      request_id: requestId(),
    };
    const request = { method: "PATCH", path: this.#path, body } as const;
    return this.#changed(this.#transport.call<{ session: SessionInfo }>(request, options));
  }

  /** Deletes the session. Returns false if it did not exist. */
  async delete(options: CallOptions & { deleteSubagents?: boolean } = {}): Promise<boolean> {
    // A repeat after a lost reply finds no session.
    const query = { allow_missing: true, delete_subagents: options.deleteSubagents };
    const request = { method: "DELETE", path: this.#path, query } as const;
    return (await this.#transport.call<{ deleted_sessions: number }>(request, options)).deleted_sessions > 0;
  }

  /** Returns a changed session. Its new policy can select other tools. */
  async #changed(reply: Promise<{ session: SessionInfo }>): Promise<SessionInfo> {
    const { session } = await reply;
    this.#state.listed.clear();
    this.#transport.definitions.delete(this.#path);
    return session;
  }

  #post<Reply>(suffix: string, body: unknown, options?: CallOptions): Promise<Reply> {
    return this.#transport.call({ method: "POST", path: this.#path + suffix, body }, options);
  }

  #get<Reply>(suffix: string, query: Query, options?: CallOptions): Promise<Reply> {
    return this.#transport.call({ method: "GET", path: this.#path + suffix, query }, options);
  }

  async *#list<Name extends string, Entry>(
    name: Name,
    suffix: string,
    options: ListOptions,
    filter: Query,
  ): AsyncGenerator<Entry, void, void> {
    yield* list<Name, Entry>(this.#transport, name, this.#path + suffix, options, filter);
  }

  /** Reads a view that exceeds the size of a reply. The stream does not contain the lead messages. */
  async #readView(path: string, reply: SyncReply, held: unknown[], attempts: Attempts): Promise<unknown[]> {
    const request = { method: "POST", path: `${path}:stream`, body: { etag: reply.etag } } as const;
    const messages = held.slice(0, reply.lead_messages);
    type Chunk = { messages: unknown[]; last: boolean };
    for await (const chunk of this.#transport.stream<Chunk>(request, attempts)) {
      messages.push(...chunk.messages);
      if (chunk.last) return messages;
    }
    const code = "UNAVAILABLE";
    throw new PalimpsestError("The stream ended before the last message of the view.", { code });
  }

  async #revisionBeforeLastChange(options: CallOptions): Promise<number | undefined> {
    const undone = new Set<string>();
    const kinds: EventKind[] = [...UNDOABLE, "context_restored"];
    for await (const event of this.events({ ...options, kinds, descending: true })) {
      if (event.context_restored) {
        for (const { revision, kind } of event.context_restored.undone) undone.add(`${revision}:${kind}`);
      } else if (!undone.has(keyOf(event))) {
        return event.revision - 1;
      }
    }
    return undefined;
  }
}

/** Reads all pages of a list. */
export async function* list<Name extends string, Entry>(
  transport: Transport,
  name: Name,
  path: string,
  options: ListOptions,
  filter: Query,
): AsyncGenerator<Entry, void, void> {
  let token: string | undefined;
  do {
    const paging = { page_size: options.pageSize, page_token: token };
    const query = { ...filter, ...paging, descending: options.descending };
    const page = await transport.call<Page<Name, Entry>>({ method: "GET", path, query }, options);
    yield* page[name];
    token = page.next_page_token;
  } while (token);
}

/** Returns the kind of an event: the field with the content, an object. Later servers can add other fields to all events. */
function kindOf(event: SessionEvent): string {
  const content = Object.entries(event).find(
    ([field, value]) => field !== "effect" && typeof value === "object",
  );
  return content?.[0] ?? "";
}

/** Returns the key of an event. A revision has at most one event of each kind. */
function keyOf(event: SessionEvent): string {
  return `${event.revision}:${kindOf(event)}`;
}

/** Returns the path of a resource name of the server. */
function pathOf(name: string): string {
  return `/v1/${name.split("/").map(encodeURIComponent).join("/")}`;
}

/** Returns the path of the sessions of a project. */
export function sessionsPath(project: string): string {
  return `/v1/projects/${checkedId("project", project)}/sessions`;
}

const MAX_ID_LENGTHS = { project: 64, session: 128 };

/** Returns a valid id, which is one segment of a path. Another id could name the path of another resource. */
function checkedId(kind: keyof typeof MAX_ID_LENGTHS, id: string): string {
  const max = MAX_ID_LENGTHS[kind];
  if (typeof id === "string" && /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(id) && id.length <= max) return id;
  throw new TypeError(
    `The id ${JSON.stringify(id)} of a ${kind} is invalid. Use at most ${max} letters, digits, "-", "_" and ".", and begin ` +
      "with a letter or a digit.",
  );
}
