// The reply to a sync as the caller uses it.

import type { AnyBody, Body, MessagesOf, RequestOf } from "./bodies.js";
import { applyBreakpoints, blocksOf } from "./cache.js";
import type { Budget, NotSendableReason, SyncOutcome, SyncReply, TokenReport, Warning } from "./wire.js";

/** A view: the messages to send to the model, and their state. */
export interface View<B extends Body = Body> {
  /** The given body with the messages of the view. */
  request: RequestOf<B>;
  /** The messages of the view. */
  messages: MessagesOf<B>;
  /** True if the view may be sent to the model. */
  sendable: boolean;
  /** The reason that the view must not be sent. Not set if the view may be sent. */
  notSendableReason: NotSendableReason | undefined;
  /** The opaque name of the view. */
  etag: string;
  tokens: TokenReport;
  budget: Budget;
  warnings: Warning[];
  /** The relation of the given conversation to the last one of the session. */
  outcome: SyncOutcome;
  /** The resource name of the session that took the conversation: the named one, or a lane of it. */
  session: string;
  /** The complete reply. */
  reply: SyncReply;
}

/** Builds the view of a body from the reply and all messages of the view. */
export function viewOf<B extends Body>(body: B, reply: SyncReply, messages: unknown[]): View<B> {
  const request: AnyBody = { ...(body as AnyBody) };
  request[body.messages ? "messages" : "input"] = messages;
  if (reply.system?.length) request.system = [...blocksOf(request.system), ...reply.system];
  applyBreakpoints(request, reply.cache_breakpoints);
  return {
    request: request as unknown as RequestOf<B>,
    messages: messages as MessagesOf<B>,
    sendable: reply.sendable,
    notSendableReason: reply.sendable ? undefined : reply.not_sendable_reason,
    etag: reply.etag,
    tokens: reply.tokens,
    budget: reply.budget,
    warnings: reply.warnings,
    outcome: reply.outcome,
    session: reply.session,
    reply,
  };
}

/** A view that must not be sent to the model, for example because a tool call has no result. */
export class NotSendableError extends Error {
  override readonly name = "NotSendableError";

  constructor(readonly reason: NotSendableReason) {
    super(`The view must not be sent to the model: ${reason}.`);
  }
}
