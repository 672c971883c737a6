// The clients of a case, the script of its provider, and the conversion of results to plain JSON.

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

/** A PNG with one pixel. */
export const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/** The beginning of a PDF. */
export const PDF = "JVBERi0xLjQKJSVFT0YK";

/** A way to the provider: directly, or through the gateway. */
export interface Way {
  name: "direct" | "gateway";
  /** The base URL of clients. */
  url: string;
  /** The address of the provider itself. */
  provider: string;
}

/** Returns both ways, from the environment. */
export function ways(): Way[] {
  const { DIRECT_PROVIDER: direct = "", GATEWAY_PROVIDER: behind = "", GATEWAY: gateway = "" } = process.env;
  return [
    { name: "direct", url: direct, provider: direct },
    { name: "gateway", url: gateway, provider: behind },
  ];
}

/** The content of a scripted answer, as `tests/provider` reads it. */
export type Turn = Record<string, unknown>;

/** One run of a case on one way. */
export class Run {
  /** The header with which the gateway describes each response. */
  readonly bodies: (string | null)[] = [];
  /** The models of a case are its own, so that its script answers no other case. */
  readonly claude: string;
  readonly gpt: string;
  readonly anthropic: Anthropic;
  readonly openai: OpenAI;

  constructor(
    readonly name: string,
    readonly way: Way,
  ) {
    this.claude = `claude-fake-${name}`;
    this.gpt = `gpt-fake-${name}`;
    const options = { apiKey: "key", defaultHeaders: { "x-case": name }, fetch: this.fetch };
    this.anthropic = new Anthropic({ ...options, baseURL: way.url });
    this.openai = new OpenAI({ ...options, baseURL: `${way.url}/v1` });
  }

  private readonly fetch = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const response = await fetch(input, init);
    this.bodies.push(response.headers.get("x-palimpsest-body"));
    return response;
  };

  /** Scripts the next answers of a model. */
  async script(model: string, turns: Turn[], others: Record<string, unknown> = {}): Promise<void> {
    const body = JSON.stringify({ match: { model }, turns, ...others });
    const response = await fetch(`${this.way.provider}/_control/script`, { method: "POST", body });
    if (!response.ok) throw new Error(await response.text());
  }

  /** Scripts an agent whose conversation exceeds the window of the model behind the gateway. */
  async scriptLong(model: string): Promise<void> {
    const window = this.way.name === "gateway" ? 60_000 : null;
    await this.script(model, [], { agent: { rounds: 16, output_bytes: [16_000, 16_000] }, window });
  }
}

/** Returns the error with which a promise rejects, and all that a program can read of it. */
export async function raised(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    if (!(error instanceof Error)) return { thrown: error };
    const classes = [];
    for (let kind = error.constructor; kind.name !== ""; kind = Object.getPrototypeOf(kind)) classes.push(kind.name);
    const fields = error as unknown as Record<string, unknown>;
    const { status, requestID, type, code, param, error: body } = fields;
    const headers = fields["headers"] instanceof Headers ? fields["headers"] : null;
    return { classes, message: error.message, status, requestID, type, code, param, body, headers };
  }
  throw new Error("the call succeeded");
}

/** Returns all events of a stream. */
export async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const events: T[] = [];
  // A snapshot changes later, so each event is copied.
  for await (const event of stream) events.push(structuredClone(event));
  return events;
}

/** Converts a result to JSON. */
export function plain(value: unknown): unknown {
  const known = (_: string, inner: unknown) => (inner instanceof Headers ? Object.fromEntries(inner) : inner);
  return JSON.parse(JSON.stringify(value ?? null, known));
}

/** Returns the output of the command that the scripted agent runs: `seq -f FORMAT 1 LAST`. */
export function linesOf(command: string): string {
  const [line = "", last = 0] = [command.split("'")[1], Number(command.split(" ").at(-1))];
  const numbers = Array.from({ length: last }, (_, index) => String(index + 1).padStart(8, "0"));
  return numbers.map((number) => line.replace("%08.0f", number) + "\n").join("");
}
