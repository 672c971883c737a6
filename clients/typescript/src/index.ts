export type { Body, InputBody, MessagesBody, MessagesOf, RequestOf } from "./bodies.js";
export { formatOf } from "./bodies.js";
export { Palimpsest } from "./client.js";
export { type ErrorDetail, PalimpsestError } from "./errors.js";
export type { ApiRequest, CallOptions, ClientOptions } from "./http.js";
export type { SendOptions } from "./send.js";
export {
  type ListOptions,
  Session,
  type SessionDefaults,
  type SyncOptions,
  type WatchOptions,
} from "./session.js";
export { isTooLong } from "./too-long.js";
export type { AnthropicTool, ChatTool, ResponsesTool, ToolCall, ToolOf, ToolResultOf } from "./tools.js";
export { NotSendableError, type View } from "./view.js";
export type { Logger } from "./warnings.js";
export type * from "./wire.js";
