// Errors of providers for prompts that are too long.

import { PalimpsestError } from "./errors.js";

/** Wordings of providers, the same in all packages. The server reads the sizes from the text. */
const WORDINGS = new RegExp(
  [
    "prompt (is )?too long|context[ _]length[ _]exceeded|maximum context length",
    "exceed\\w* (the |this )?(model'?s )?(available |maximum )?context[ _](length|size|window|limit)",
    "context window exceeds|input (is )?too long|too many input tokens|input token count",
    "maximum number of tokens allowed|longer than the (model's context|maximum model) length",
    "reduce the length of the (messages|prompt|input)|request_too_large",
  ].join("|"),
  "i",
);

/** The HTTP statuses of such errors. Streams report the error in an event, without a status. */
const STATUSES: unknown[] = [undefined, 400, 422, 500];

interface ProviderError {
  message?: unknown;
  status?: unknown;
  statusCode?: unknown;
  error?: unknown;
  responseBody?: unknown;
}

/** Returns true if an error of a provider's SDK or of the AI SDK reports a prompt that is too long. */
export function isTooLong(error: unknown): boolean {
  // An error of the service has a status too.
  if (error instanceof PalimpsestError) return false;
  const { status, statusCode } = (error ?? {}) as ProviderError;
  const given = status ?? statusCode;
  return given === 413 || (STATUSES.includes(given) && WORDINGS.test(textOf(error)));
}

/**
 * Returns the view of a sync that follows a rejection by the provider. If the service cannot shorten the prompt, the
 * rejection is thrown, as without the service. It states the limit, for example one that `max_tokens` exceeds.
 */
export async function shortened<View>(rejection: unknown, sync: () => Promise<View>): Promise<View> {
  try {
    return await sync();
  } catch (error) {
    if (!(error instanceof PalimpsestError) || error.reason !== "PROMPT_TOO_LONG") throw error;
    const attachable = rejection instanceof Error && Object.isExtensible(rejection);
    // The SDKs of providers set a cause for failures of the network only.
    if (attachable && rejection.cause === undefined) rejection.cause = error;
    throw rejection;
  }
}

/** Returns the text of an error, with the provider's fields. The server reads the sizes from it. */
export function textOf(error: unknown): string {
  if (typeof error === "string") return error;
  const { message, error: fields, responseBody } = (error ?? {}) as ProviderError;
  const parts = [message, responseBody ?? (fields === undefined ? undefined : JSON.stringify(fields))];
  return parts.filter((part) => typeof part === "string").join("\n");
}
