// Real servers and fake model providers for the tests.

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** A running program with an HTTP address. */
export interface Program {
  url: string;
  stop(): Promise<void>;
}

/** Starts a server with an empty data folder. `settings` is a configuration as TOML. */
export async function startServer(settings = ""): Promise<Program> {
  const folder = mkdtempSync(join(tmpdir(), "palimpsest-"));
  writeFileSync(join(folder, "palimpsest.toml"), settings);
  const listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
  const files = ["--config", join(folder, "palimpsest.toml"), "--data-dir", join(folder, "data")];
  const args = ["serve", ...listen, ...files, "--log-format", "json"];
  const env = serverEnvironment();
  const child = spawn(required("PALIMPSEST_BINARY"), args, { stdio: ["ignore", "pipe", "pipe"], env });
  const address = await firstLine(child, (line) => {
    const entry = line.startsWith("{") ? JSON.parse(line) : {};
    return entry.message === "serving" ? `http://${entry.grpc}` : undefined;
  });
  return { url: address, stop: () => stop(child).then(() => rmSync(folder, { recursive: true })) };
}

/** One scripted answer of the model. */
export interface Turn {
  text?: string;
  thinking?: string;
  calls?: { name: string; input?: unknown }[];
  usage?: { input?: number; output?: number };
}

/** A request that the provider recorded. */
export interface RecordedRequest {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: the tests read the bodies of three APIs
  body: any;
}

/** The tokens of all requests with a key, by their price. */
export interface Bill {
  input_tokens: number;
  cache_read_tokens: number;
  cache_write_5m_tokens: number;
  cost_milli: number;
}

/** A fake model provider. */
export interface Provider extends Program {
  /** Sets the next answers of a model. */
  script(model: string, turns: Turn[], window?: number): Promise<void>;
  /** Returns the recorded requests for a model. */
  requests(model: string): Promise<RecordedRequest[]>;
  /** Returns the bill of a key. */
  bill(key: string): Promise<Bill>;
}

export async function startProvider(): Promise<Provider> {
  const child = spawn(required("PALIMPSEST_FAKE_PROVIDER"), [], { stdio: ["ignore", "pipe", "pipe"] });
  const url = await firstLine(child, (line) => (line.startsWith("http") ? line.trim() : undefined));
  return {
    url,
    stop: () => stop(child),
    async script(model, turns, window) {
      const body = JSON.stringify({ match: { model }, turns, ...(window ? { window } : {}) });
      const response = await fetch(`${url}/_control/script`, { method: "POST", body });
      if (!response.ok) throw new Error(await response.text());
    },
    async requests(model) {
      const response = await fetch(`${url}/_control/requests`);
      const { requests } = (await response.json()) as { requests: RecordedRequest[] };
      return requests.filter((request) => request.body?.model === model);
    },
    async bill(key) {
      const response = await fetch(`${url}/_control/bill`, { headers: { "x-api-key": key } });
      return (await response.json()) as Bill;
    },
  };
}

/** Creates a key with the given rights in the project `demo`, in a file of keys. */
export function createKey(file: string, right: string): string {
  const args = ["keys", "create", "--keys-file", file, "--project", "demo", "--right", right];
  return execFileSync(required("PALIMPSEST_BINARY"), args, {
    env: serverEnvironment(),
    encoding: "utf8",
  }).trim();
}

/** Returns the environment without variables that the server would reject as unknown settings. */
function serverEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("PALIMPSEST_")));
}

/** Returns a text with many lines, which the service stores. The last line is `disk full`. */
export function largeLog(lines = 5_000): string {
  const steps = Array.from({ length: lines }, (_, step) => `step ${step}: compiled, no warnings\n`);
  return `${steps.join("")}disk full\n`;
}

/** Returns the entries of an async iterator. */
export async function collect<Entry>(entries: AsyncIterable<Entry>): Promise<Entry[]> {
  const all: Entry[] = [];
  for await (const entry of entries) all.push(entry);
  return all;
}

/** Returns the value of an environment variable. */
export function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`Set ${name}.`);
  return value;
}

function firstLine(child: ChildProcess, read: (line: string) => string | undefined): Promise<string> {
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`The program ended with code ${code}.`)));
    for (const stream of [child.stdout, child.stderr]) {
      if (!stream) continue;
      createInterface({ input: stream }).on("line", (line) => {
        const found = read(line);
        if (found) resolve(found);
      });
    }
  });
}

function stop(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.on("exit", () => resolve());
    child.kill("SIGTERM");
    setTimeout(() => child.kill("SIGKILL"), 3_000).unref();
  });
}
