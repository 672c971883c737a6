// HTTP calls with deadlines and retries.

import { errorOf, errorOfResponse, PalimpsestError } from "./errors.js";

/** Options of a client. */
export interface ClientOptions {
  /** The URL of the server. Default: `PALIMPSEST_URL`, or `http://127.0.0.1:50051`. */
  url?: string;
  /** The API key or token. Default: `PALIMPSEST_API_KEY`, or none. */
  apiKey?: string;
  /** The deadline of one attempt in milliseconds. Default: 120,000. */
  timeoutMs?: number;
  /** The maximum number of retries of a call. Default: 4. */
  maxRetries?: number;
  /** The implementation of `fetch`. Default: the global one. */
  fetch?: typeof fetch;
}

/** Options of one call. */
export interface CallOptions {
  /** Cancels the call and its retries. */
  signal?: AbortSignal | undefined;
  /** The deadline of one attempt in milliseconds. Default: that of the client. */
  timeoutMs?: number | undefined;
}

/** The HTTP request of a call. */
export interface ApiRequest {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  path: string;
  query?: Query | undefined;
  body?: unknown;
}

/** Parameters of a URL. Entries without a value are omitted. */
export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

/** The time in milliseconds that the server has to report an exceeded deadline itself. */
const DEADLINE_GRACE_MS = 500;

/** A watch has a heartbeat every 30 seconds, so a longer silence is a broken connection. */
const MAX_SILENCE_MS = 90_000;

const JSON_LINES = { accept: "application/x-ndjson" };

/** The connection to a server. */
export class Transport {
  readonly #options: Required<Omit<ClientOptions, "apiKey">> & { apiKey: string | undefined };

  constructor(options: ClientOptions) {
    const url = options.url ?? environment("PALIMPSEST_URL") ?? "http://127.0.0.1:50051";
    this.#options = {
      url: url.replace(/\/+$/, ""),
      apiKey: options.apiKey ?? environment("PALIMPSEST_API_KEY"),
      timeoutMs: options.timeoutMs ?? 120_000,
      maxRetries: options.maxRetries ?? 4,
      // An unbound `fetch` fails in browsers.
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    };
  }

  /** Makes a call and returns its reply. */
  async call<Reply>(request: ApiRequest, options: CallOptions = {}): Promise<Reply> {
    const timeoutMs = options.timeoutMs ?? this.#options.timeoutMs;
    return this.#withRetries(options.signal, async () => {
      const deadline = AbortSignal.timeout(timeoutMs + DEADLINE_GRACE_MS);
      const signal = options.signal ? AbortSignal.any([options.signal, deadline]) : deadline;
      const headers = { "connect-timeout-ms": String(Math.ceil(timeoutMs)) };
      try {
        const response = await this.#send(request, signal, headers);
        return (await response.json()) as Reply;
      } catch (cause) {
        throw failure(cause, options.signal, deadline);
      }
    });
  }

  /** Makes a call with a stream of JSON lines as its reply. The stream has no deadline. */
  async *stream<Element>(request: ApiRequest, signal?: AbortSignal): AsyncGenerator<Element, void, void> {
    const response = await this.#withRetries(signal, () =>
      this.#send(request, signal, JSON_LINES).catch((cause) => {
        throw failure(cause, signal);
      }),
    );
    try {
      yield* elementsOf<Element>(response);
    } catch (cause) {
      throw failure(cause, signal);
    }
  }

  /** Makes one attempt of a call whose stream has no end. A silent stream fails. */
  async *watch<Element>(request: ApiRequest, signal?: AbortSignal): AsyncGenerator<Element, void, void> {
    const silence = new AbortController();
    const fail = () => silence.abort(new Error("the stream is silent"));
    const either = signal ? AbortSignal.any([signal, silence.signal]) : silence.signal;
    let timer = setTimeout(fail, MAX_SILENCE_MS);
    try {
      const response = await this.#send(request, either, JSON_LINES);
      for await (const element of elementsOf<Element>(response)) {
        // The caller can take longer than the silence.
        clearTimeout(timer);
        yield element;
        timer = setTimeout(fail, MAX_SILENCE_MS);
      }
    } catch (cause) {
      throw failure(cause, signal);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits before the next attempt, or throws the error of the last one. `retry` is the number of earlier retries. */
  async waitToRetry(retry: number, error: unknown, signal?: AbortSignal): Promise<void> {
    const isLast = retry >= this.#options.maxRetries;
    if (isLast || !(error instanceof PalimpsestError) || !error.retryable) throw error;
    await sleep(retryDelay(retry, error.retryAfter), signal);
  }

  async #send(request: ApiRequest, signal: AbortSignal | undefined, extra: Record<string, string>) {
    const { url, apiKey } = this.#options;
    const headers: Record<string, string> = { "content-type": "application/json", ...extra };
    if (apiKey) headers.authorization = `Bearer ${apiKey}`;
    const init: RequestInit = { method: request.method, headers, signal: signal ?? null };
    if (request.body !== undefined) init.body = JSON.stringify(request.body);
    const response = await this.#options.fetch(`${url}${request.path}${searchOf(request.query)}`, init);
    if (!response.ok) throw await errorOfResponse(response);
    return response;
  }

  async #withRetries<Reply>(signal: AbortSignal | undefined, attempt: () => Promise<Reply>): Promise<Reply> {
    for (let retry = 0; ; retry++) {
      try {
        signal?.throwIfAborted();
        return await attempt();
      } catch (error) {
        await this.waitToRetry(retry, error, signal);
      }
    }
  }
}

/** Returns the delay before a retry in milliseconds. `retry` is the number of earlier retries. */
function retryDelay(retry: number, retryAfter = 0): number {
  const delay = Math.max(Math.min(100 * 2 ** retry, 10_000), retryAfter * 1_000);
  // Random jitter keeps clients from retrying at the same moment.
  return delay * (1 + Math.random() / 2);
}

/** Waits, or fails with the reason of the signal. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
  });
}

/** Returns a random id for an idempotent call. */
export function requestId(): string {
  // `crypto.randomUUID` is missing on pages without TLS.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function environment(name: string): string | undefined {
  try {
    const program = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process;
    return program?.env?.[name] || undefined;
  } catch {
    // Deno throws if the program may not read the environment.
    return undefined;
  }
}

function searchOf(query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const entry of value) search.append(name, entry);
    else if (value !== undefined) search.append(name, String(value));
  }
  return search.size > 0 ? `?${search}` : "";
}

/** Returns the error to throw for a failure of `fetch`. */
function failure(cause: unknown, signal?: AbortSignal, deadline?: AbortSignal): unknown {
  if (cause instanceof PalimpsestError || signal?.aborted) return cause;
  if (deadline?.aborted) {
    return new PalimpsestError("The call exceeded its deadline.", {
      code: 0,
      status: "DEADLINE_EXCEEDED",
      cause,
    });
  }
  const text = cause instanceof Error ? cause.message : String(cause);
  return new PalimpsestError(`Cannot reach the server: ${text}`, { code: 0, status: "UNAVAILABLE", cause });
}

/** Reads the elements of a stream of JSON lines. */
async function* elementsOf<Element>(response: Response): AsyncGenerator<Element, void, void> {
  for await (const line of linesOf(response)) {
    const element = JSON.parse(line);
    if (element.error) throw errorOf(element, response.status);
    yield element as Element;
  }
}

async function* linesOf(response: Response): AsyncGenerator<string, void, void> {
  const reader = response.body?.getReader();
  if (!reader) return;
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.trim()) yield line;
    }
    if (rest.trim()) yield rest;
  } finally {
    // Ends the request when the caller stops reading.
    reader.cancel().catch(() => {});
  }
}
