// The error of a failed call.

/** One entry of `details` of an error. Its `@type` names the other fields. */
export interface ErrorDetail {
  "@type": string;
  [field: string]: unknown;
}

/** The fields of a {@link PalimpsestError}. */
export interface ErrorFields {
  code: string;
  status?: number;
  details?: ErrorDetail[];
  /** The delay before a retry, in seconds. */
  retryAfter?: number | undefined;
  cause?: unknown;
}

const TRANSIENT = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED"]);

/** A call that the server rejected, or that did not reach the server. */
export class PalimpsestError extends Error {
  override readonly name = "PalimpsestError";
  /** The status code of the contract, for example `NOT_FOUND`. The field `status` of the JSON of an error. */
  readonly code: string;
  /** The HTTP status, for example 404. 0 if no response arrived. The field `code` of the JSON of an error. */
  readonly status: number;
  /** The stable name of the cause, for example `SESSION_NOT_FOUND`. Empty if the server did not answer. */
  readonly reason: string;
  /** The details of the reason, for example the name of the session. */
  readonly metadata: Readonly<Record<string, string>>;
  readonly details: readonly ErrorDetail[];
  /** The delay that the server requests before a retry, in seconds. */
  readonly retryAfter: number | undefined;

  constructor(message: string, fields: ErrorFields) {
    super(message, { cause: fields.cause });
    const details = fields.details ?? [];
    const info = detail(details, "google.rpc.ErrorInfo");
    const retryDelay = detail(details, "google.rpc.RetryInfo")?.retryDelay;
    this.code = fields.code;
    this.status = fields.status ?? 0;
    this.reason = String(info?.reason ?? "");
    this.metadata = (info?.metadata ?? {}) as Record<string, string>;
    this.details = details;
    this.retryAfter = retryDelay === undefined ? fields.retryAfter : Number.parseFloat(String(retryDelay));
  }

  /** True if the contract permits an automatic retry. */
  get retryable(): boolean {
    return this.retryAfter !== undefined || TRANSIENT.has(this.code);
  }
}

function detail(details: readonly ErrorDetail[], type: string): ErrorDetail | undefined {
  return details.find((entry) => entry["@type"].endsWith(`/${type}`));
}

/** The codes of responses that a proxy sent instead of the server. */
const CODE_OF_STATUS: Record<number, string> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  408: "DEADLINE_EXCEEDED",
  413: "RESOURCE_EXHAUSTED",
  429: "RESOURCE_EXHAUSTED",
  500: "INTERNAL",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "DEADLINE_EXCEEDED",
};

/** The JSON of an error of the service. */
interface ErrorJson {
  code: number;
  status: string;
  message: string;
  details?: ErrorDetail[];
}

/** Returns the error of the JSON of an error, or nothing if the JSON is none of the service. */
export function errorOf(json: unknown, retryAfter?: number): PalimpsestError | undefined {
  const error = (json as { error?: Partial<ErrorJson> } | undefined)?.error;
  // Errors of providers have a message too, but no name of a status.
  if (typeof error?.status !== "string") return undefined;
  const { code: status, status: code, message, details = [] } = error as ErrorJson;
  return new PalimpsestError(message, { code, status, details, retryAfter });
}

/** Returns the error of a failed HTTP response. `url` is that of the server. */
export async function errorOfResponse(response: Response, url: string): Promise<PalimpsestError> {
  const header = Number.parseFloat(response.headers.get("retry-after") ?? "");
  const text = await response.text().catch(() => "");
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    // A proxy can answer with a page.
  }
  const retryAfter = Number.isNaN(header) ? undefined : header;
  const { status } = response;
  const code = CODE_OF_STATUS[status] ?? "UNKNOWN";
  return errorOf(json, retryAfter) ?? new PalimpsestError(textOf(url, status), { code, status, retryAfter });
}

/** Returns the text of the error for a response that has none of the service. A page can have a server without a URL. */
function textOf(url: string, status: number): string {
  const response = `The response from ${url || "the origin of the page"} has the HTTP status ${status} and no error of Palimpsest`;
  return [404, 405].includes(status)
    ? `${response}: this is no Palimpsest server. Check the URL of the server.`
    : `${response}: a proxy answered, or this is no Palimpsest server.`;
}
