// A sync of messages of the AI SDK. The module does not load the AI SDK.

import { Conversation, type SdkMessage } from "./ai-sdk-messages.js";
import type { Responses } from "./ai-sdk-responses.js";
import type { Palimpsest } from "./client.js";
import type { Session, SyncOptions } from "./session.js";
import type { View } from "./view.js";

/** Options of a sync of the AI SDK. */
export interface SdkOptions extends Omit<SyncOptions, "format" | "lastResponse"> {
  /** The name of the model. */
  model?: string | undefined;
  /** Definitions of tools, whose tokens are counted. */
  tools?: readonly object[] | undefined;
}

/** Options of the syncs of a model's calls. `signal` cancels a sync, as the signal of the call does. */
export type ContextOptions = Omit<SdkOptions, "tooLong">;

/** Options of an adapter that opens the session by its name. */
export interface SessionOptions extends Omit<ContextOptions, "model" | "tools"> {
  /** The client of the server. Default: one `new Palimpsest()`, which all calls of the program share. */
  client?: Palimpsest | undefined;
  /** If false, the model gets no tools of the service, for a model that takes none. Default: true. */
  readBack?: boolean | undefined;
}

/** The messages for the model, and the state of the view. */
export interface SdkView<Message> extends Omit<View, "request" | "messages"> {
  messages: Message[];
}

/** Sends the whole conversation and returns the messages for the model. */
export async function syncMessages<Message extends SdkMessage>(
  session: Session,
  messages: readonly Message[],
  { model, tools, target, ...options }: SdkOptions,
  responses?: Responses,
): Promise<SdkView<Message>> {
  const conversation = new Conversation(messages);
  const body = { model, system: conversation.system, tools: tools ?? [], messages: conversation.messages };
  const view = await session.sync(body, {
    ...options,
    format: "anthropic_messages",
    lastResponse: responses?.lastOf(conversation.messages, (id) => conversation.originalId(id)),
    // The provider of the model decides whether it sends reasoning.
    target: { thinking: true, ...target },
  });
  const restored = conversation.restore(view.messages, view.request.system);
  return { ...view, messages: restored as Message[] };
}
