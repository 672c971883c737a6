// HTTP calls with deadlines and retries.

import { Attempts } from "./attempts.js";
import { DefinitionLists } from "./definitions.js";
import { errorOf, errorOfResponse, PalimpsestError } from "./errors.js";
import { type Logger, WarningLog } from "./warnings.js";

/** Options of a client. */
export interface ClientOptions {
  /** The URL of the server, or `host:port`. Default: `PALIMPSEST_URL`, or `http://127.0.0.1:50051`. */
  url?: string;
  /** The API key or token. Default: `PALIMPSEST_API_KEY`, or none. */
  apiKey?: string;
  /** The deadline of a call with its retries, in milliseconds. Default: 120,000. */
  timeoutMs?: number;
  /** The maximum number of retries of a call. Default: 8. */
  maxRetries?: number;
  /** The implementation of `fetch`. Default: the global one. */
  fetch?: typeof fetch;
  /** The log for the warnings of views, which contain no conversation content. Default: `console`. */
  logger?: Logger;
}

/** The deadline and the retries of calls. */
export interface RetryOptions {
  /** The deadline of a call with its retries, in milliseconds. */
  timeoutMs?: number | undefined;
  /** The maximum number of retries of a call. */
  maxRetries?: number | undefined;
}

/** Options of one call. */
export interface CallOptions {
  /** Cancels the call and its retries. */
  signal?: AbortSignal | undefined;
  /** The deadline of the call with its retries, in milliseconds. Default: that of the client. */
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
  /** The kept definitions of the service's tools. */
  readonly definitions: DefinitionLists;
  readonly warningLog: WarningLog;
  readonly #options: Required<ClientOptions>;

  constructor(options: ClientOptions, shared?: Transport) {
    const logger = options.logger ?? console;
    this.definitions = shared?.definitions ?? new DefinitionLists();
    this.warningLog = shared?.warningLog ?? new WarningLog(logger);
    this.#options = {
      url: baseOf(options.url ?? environment("PALIMPSEST_URL") ?? "http://127.0.0.1:50051"),
      apiKey: keyOf(options.apiKey ?? environment("PALIMPSEST_API_KEY") ?? ""),
      timeoutMs: options.timeoutMs ?? 120_000,
      maxRetries: options.maxRetries ?? 8,
      // An unbound `fetch` fails in browsers.
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
      logger,
    };
  }

  /** Returns the same connection with another deadline or other retries of its calls. */
  withOptions(options: RetryOptions): Transport {
    const { timeoutMs = this.#options.timeoutMs, maxRetries = this.#options.maxRetries } = options;
    return new Transport({ ...this.#options, timeoutMs, maxRetries }, this);
  }

  /** Returns the attempts of a call. */
  attempts(options: CallOptions = {}): Attempts {
    const { timeoutMs, maxRetries } = this.#options;
    return new Attempts(options.timeoutMs ?? timeoutMs, maxRetries, options.signal);
  }

  /** Makes a call and returns its reply. */
  async call<Reply>(
    request: ApiRequest,
    options?: CallOptions,
    attempts = this.attempts(options),
  ): Promise<Reply> {
    return attempts.run(async () => {
      const { signal, headers, failure } = this.#limits(attempts);
      try {
        const response = await this.#send(request, signal, headers);
        return (await response.json()) as Reply;
      } catch (cause) {
        throw failure(cause);
      }
    });
  }

  /** Makes a call with a stream of JSON lines as its reply. The deadline of the attempts includes the stream. */
  async *stream<Element>(request: ApiRequest, attempts: Attempts): AsyncGenerator<Element, void, void> {
    const { response, failure } = await attempts.run(async () => {
      const { signal, headers, failure } = this.#limits(attempts);
      try {
        return { response: await this.#send(request, signal, { ...JSON_LINES, ...headers }), failure };
      } catch (cause) {
        throw failure(cause);
      }
    });
    try {
      yield* elementsOf<Element>(response);
    } catch (cause) {
      throw failure(cause);
    }
  }

  /** Makes one attempt of a call whose stream has no end. A silent stream fails. */
  async *watch<Element>(request: ApiRequest, signal?: AbortSignal): AsyncGenerator<Element, void, void> {
    const silence = new AbortController();
    const fail = () => silence.abort(new Error("the stream is silent"));
    const either = anyOf(signal, silence.signal);
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
      throw this.#failure(cause, signal);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Returns the limits of one attempt: the signal and the headers of its request, and the error of its failure. */
  #limits(attempts: Attempts) {
    const { signal: given, remainingMs } = attempts;
    const deadline = AbortSignal.timeout(Math.ceil(remainingMs) + DEADLINE_GRACE_MS);
    return {
      signal: anyOf(given, deadline),
      headers: { "connect-timeout-ms": String(Math.ceil(remainingMs)) },
      failure: (cause: unknown) => this.#failure(cause, given, deadline),
    };
  }

  /** Returns the error to throw for a failure of `fetch`. */
  #failure(cause: unknown, signal?: AbortSignal, deadline?: AbortSignal): unknown {
    if (cause instanceof PalimpsestError || signal?.aborted) return cause;
    const { url } = this.#options;
    if (deadline?.aborted) {
      const text = `The call to the server at ${url} exceeded its deadline.`;
      return new PalimpsestError(text, { code: "DEADLINE_EXCEEDED", cause });
    }
    const text = `Cannot reach the server at ${url}: ${textOf(cause)}`;
    return new PalimpsestError(text, { code: "UNAVAILABLE", cause });
  }

  async #send(request: ApiRequest, signal: AbortSignal | undefined, extra: Record<string, string>) {
    const { url, apiKey } = this.#options;
    const headers: Record<string, string> = { "content-type": "application/json", ...extra };
    if (apiKey) headers.authorization = `Bearer ${apiKey}`;
    const init: RequestInit = { method: request.method, headers, signal: signal ?? null };
    if (request.body !== undefined) init.body = JSON.stringify(request.body);
    const response = await this.#options.fetch(`${url}${request.path}${searchOf(request.query)}`, init);
    if (!response.ok) throw await errorOfResponse(response, url);
    return response;
  }
}

/** Returns the URL of a server without the path of the API, which each request adds. A page can pass a path. */
function baseOf(given: string): string {
  const base = given.trim().replace(/(\/v1)?\/*$/, "");
  if (/^(https?:\/\/|\/|$)/i.test(base)) return base;
  // The command line has the same default scheme. A URL parser would read `localhost` as the scheme.
  if (/^[^/\s]+:\d+(\/|$)/.test(base)) return `http://${base}`;
  throw new TypeError(
    `The URL of the server must begin with http:// or https://, or be host:port, not ${JSON.stringify(given)}.`,
  );
}

/** Returns an API key without white space around it, such as the line break at the end of a file. */
function keyOf(given: string): string {
  const key = given.trim();
  // The runtime would reject the header with an error that contains the key.
  if (/^[\x21-\x7e]*$/.test(key)) return key;
  throw new TypeError(
    "The API key contains a character that no key has, such as a line break. Check `apiKey` or PALIMPSEST_API_KEY.",
  );
}

/** Returns a signal that aborts with each of the given ones. */
export function anyOf(...signals: (AbortSignal | undefined)[]): AbortSignal | undefined {
  const given = signals.filter((signal) => signal !== undefined);
  return given.length > 1 ? AbortSignal.any(given) : given[0];
}

/** Returns the text of an error with that of its cause. `fetch` of Node gives the reason of a failure in the cause. */
function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  return cause instanceof Error ? `${error.message}: ${cause.message}` : error.message;
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

/** Reads the elements of a stream of JSON lines. */
async function* elementsOf<Element>(response: Response): AsyncGenerator<Element, void, void> {
  for await (const line of linesOf(response)) {
    const element = JSON.parse(line);
    const error = errorOf(element);
    if (error) throw error;
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
