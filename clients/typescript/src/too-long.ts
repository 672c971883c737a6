// Errors of providers for prompts that are too long.

const WORDINGS =
  /prompt is too long|context.?length|context.?window|context size|context limit|input is too long|token count.*exceeds|too many (input )?tokens|request_too_large/i;

interface ProviderError {
  message?: unknown;
  status?: unknown;
  statusCode?: unknown;
  error?: unknown;
  responseBody?: unknown;
}

/** Returns true if an error of a provider's SDK or of the AI SDK reports a prompt that is too long. */
export function isTooLong(error: unknown): boolean {
  const { status, statusCode } = (error ?? {}) as ProviderError;
  const code = status ?? statusCode;
  if (code === 413) return true;
  // Streams report the error in an event, without a status.
  return (code === 400 || code === undefined) && WORDINGS.test(textOf(error));
}

/** Returns the text of an error, with the provider's fields. The server reads the sizes from it. */
export function textOf(error: unknown): string {
  if (typeof error === "string") return error;
  const { message, error: fields, responseBody } = (error ?? {}) as ProviderError;
  const parts = [message, responseBody ?? (fields === undefined ? undefined : JSON.stringify(fields))];
  return parts.filter((part) => typeof part === "string").join("\n");
}
