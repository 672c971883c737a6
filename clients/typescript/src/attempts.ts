// The attempts of one call.

import { PalimpsestError } from "./errors.js";

const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 10_000;

/** Timers of most runtimes end at once for a later deadline. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1_000;

/** The attempts of one call, which share its deadline and its signal. */
export class Attempts {
  /** Cancels the call and its retries. */
  readonly signal: AbortSignal | undefined;
  readonly #deadline: number;
  #retries: number;
  #delayMs = FIRST_DELAY_MS;

  constructor(timeoutMs: number, maxRetries: number, signal: AbortSignal | undefined) {
    if (!(timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS)) {
      throw new RangeError(`\`timeoutMs\` must be between 1 and ${MAX_TIMEOUT_MS}, not ${timeoutMs}.`);
    }
    this.#deadline = performance.now() + timeoutMs;
    this.#retries = maxRetries;
    this.signal = signal;
  }

  /** The time until the deadline in milliseconds, at least 1. */
  get remainingMs(): number {
    return Math.max(this.#deadline - performance.now(), 1);
  }

  /** Makes attempts until one succeeds, or fails with an error that the contract does not permit to retry. */
  async run<Reply>(attempt: () => Promise<Reply>): Promise<Reply> {
    for (;;) {
      try {
        this.signal?.throwIfAborted();
        return await attempt();
      } catch (error) {
        await this.waitAfter(error);
      }
    }
  }

  /** Waits until the next attempt, or throws the error of the last one. */
  async waitAfter(error: unknown): Promise<void> {
    if (!(error instanceof PalimpsestError) || !error.retryable || this.#retries <= 0) throw error;
    // Random jitter keeps clients from retrying at the same moment.
    const delayMs = Math.max(this.#delayMs, (error.retryAfter ?? 0) * 1_000) * (1 + Math.random() / 2);
    if (delayMs >= this.remainingMs) throw error;
    this.#retries--;
    this.#delayMs = Math.min(this.#delayMs * 2, LONGEST_DELAY_MS);
    await sleep(delayMs, this.signal);
  }
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
