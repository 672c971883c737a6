// The loop of an agent: sync, model request, tool calls. The modules of the providers supply the parts that differ.

import type { Body, RequestOf } from "./bodies.js";
import { PalimpsestError } from "./errors.js";
import type { SendOptions } from "./send.js";
import type { Session } from "./session.js";
import type { ToolCall, ToolOf } from "./tools.js";
import type { Format } from "./wire.js";

/** Options of a run. */
export interface RunOptions<Call, Event> {
  /** Runs a call of a tool of the caller and returns its result. Default: the run ends, and returns the calls. */
  runTool?: ((call: Call) => string | Promise<string>) | undefined;
  /** Receives the events of the provider's streams. Default: the requests do not stream. */
  onEvent?: ((event: Event) => void) | undefined;
  /** If false, the model gets no tools of the service, for a model that takes none. Default: true. */
  readBack?: boolean | undefined;
  /** Cancels the run. */
  signal?: AbortSignal | undefined;
  /** Options of each sync. */
  sync?: Omit<SendOptions, "format" | "signal">;
}

/** The end of a run. */
export interface RunResult<Response, Call> {
  /** The last response of the model. */
  response: Response;
  /** The calls of the caller's tools that were not run. Append their results before the next run. */
  calls: Call[];
}

/** The parts of a run that differ between providers. */
export interface Adapter<B extends Body, Response extends object, Call extends ToolCall, F extends Format> {
  format: F;
  body: B;
  /** The messages of the body. Responses and results are appended to them. */
  array: unknown[];
  /** Returns the body with more tools. */
  withTools(tools: ToolOf<F>[]): B;
  /** Sends a request. */
  send(request: RequestOf<B>): Promise<Response>;
  /** Returns the messages of a response. */
  messagesOf(response: Response): unknown[];
  callsOf(response: Response): Call[];
  /** Returns the result of a call with a text, which can be an error. */
  resultOf(call: Call, text: string, isError?: boolean): unknown;
  /** Returns the messages with results. */
  messagesOfResults(results: unknown[]): unknown[];
}

/** Runs the loop until the model calls no tool, or a tool that the caller has to run. */
export async function run<B extends Body, Response extends object, Call extends ToolCall, F extends Format>(
  session: Session,
  adapter: Adapter<B, Response, Call, F>,
  options: RunOptions<Call, never>,
): Promise<RunResult<Response, Call>> {
  const { array, format } = adapter;
  const { runTool, readBack = true, signal } = options;
  const { timeoutMs } = options.sync ?? {};
  const tools = readBack ? await session.tools(format, { timeoutMs, signal }) : [];
  // A provider rejects an empty list.
  const body = tools.length > 0 ? adapter.withTools(tools) : adapter.body;
  for (;;) {
    const call = (request: RequestOf<B>) => adapter.send(request);
    const response = await session.send(body, call, { ...options.sync, format, signal });
    const calls = adapter.callsOf(response);
    const isOpen = (call: Call) => !runTool && !session.isOwn(call);
    const answer = async (call: Call) => {
      if (!session.isOwn(call)) return adapter.resultOf(call, (await runTool?.(call)) ?? "");
      try {
        return await session.runTool(call, { signal });
      } catch (error) {
        // An error of one call must not discard the results of the caller's tools.
        if (!(error instanceof PalimpsestError)) throw error;
        return adapter.resultOf(call, `${error.reason || error.code}: ${error.message}`, true);
      }
    };
    const results = await Promise.all(calls.filter((call) => !isOpen(call)).map(answer));
    // Appended together, so that a failed tool leaves the messages without an open call.
    array.push(
      ...adapter.messagesOf(response),
      ...(results.length > 0 ? adapter.messagesOfResults(results) : []),
    );
    const open = calls.filter(isOpen);
    if (calls.length === 0 || open.length > 0) return { response, calls: open };
  }
}
