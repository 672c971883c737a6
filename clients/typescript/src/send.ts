// A model request in a session: the sync, the request, and once more if the prompt is too long.

import type { Body, RequestOf } from "./bodies.js";
import type { Session, SyncOptions } from "./session.js";
import { isTooLong, shortened } from "./too-long.js";
import { callIdsOf } from "./tools.js";
import { NotSendableError, type View } from "./view.js";

/** Options of the sync of a request. */
export type SendOptions = Omit<SyncOptions, "tooLong" | "lastResponse">;

/** The last response of each conversation, by its array. The usage makes the token counts of the next sync exact. */
const lastResponses = new WeakMap<object, object>();

/** Syncs a body, sends the request with `call`, and sends a shorter one if the provider rejects it as too long. */
export async function send<B extends Body, Response>(
  session: Session,
  body: B,
  call: (request: RequestOf<B>, view: View<B>) => PromiseLike<Response>,
  options: SendOptions,
): Promise<Response> {
  const array = arrayOf(body);
  const request = async (tooLong?: unknown): Promise<View<B>> => {
    const lastResponse = lastResponses.get(array);
    const view = await session.sync(body, { ...options, lastResponse, tooLong });
    const reason = view.notSendableReason;
    // A provider can accept a response to continue.
    if (reason && reason !== "ends_with_assistant") throw new NotSendableError(reason);
    return view;
  };
  let view = await request();
  let response: Response;
  try {
    response = await call(view.request, view);
  } catch (error) {
    if (!isTooLong(error)) throw error;
    view = await shortened(error, () => request(error));
    response = await call(view.request, view);
  }
  session.assignCalls(view, callIdsOf(response));
  // A stream has no usage yet.
  if (typeof response === "object" && response && "usage" in response) lastResponses.set(array, response);
  return response;
}

/** Returns the messages of a body, or the body if its input is a text. */
function arrayOf(body: Body): object {
  const array = body.messages ?? body.input;
  return typeof array === "object" ? array : body;
}
