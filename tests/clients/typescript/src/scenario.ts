// Placeholders, paths and texts of a scenario.

import { createHash } from "node:crypto";
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

export type { JsonObject, JsonValue };

/** The description of a long text. */
export interface TextRecipe {
  count: number;
  before: string;
  after: string;
}

/** The rules for writing answers. */
export interface Rules {
  hidden: Record<string, string>;
  numbered: Record<string, string>;
  text: string[];
}

/** A check of the client. */
export interface Check {
  bytes?: string;
  array?: string;
  value?: string;
  equals: JsonValue;
  from?: number;
  to?: number;
}

/** One step. */
export interface Step {
  name: string;
  call?: string;
  request?: JsonObject;
  server?: string;
  key?: string | null;
  headers?: Record<string, string>;
  deadline_ms?: number;
  cancel_after_ms?: number;
  read?: number;
  hold?: string;
  resume?: string;
  release?: string;
  client_status?: boolean;
  headers_shown?: string[];
  capture?: Record<string, string>;
  array?: string;
  checks?: Check[];
}

/** The scenario. */
export interface Scenario {
  texts: Record<string, TextRecipe>;
  show: Rules;
  steps: Step[];
}

/** The addresses of the servers, and the keys. */
export interface World {
  servers: Record<string, string>;
  ca_file: string;
  keys: Record<string, string>;
}

/** Returns a long text of the scenario. */
export function makeText({ count, before, after }: TextRecipe): string {
  return Array.from({ length: count }, (_, n) => `${before}${n + 1}${after}`).join("");
}

const PLACEHOLDERS = /\{\{([^}]*)\}\}/g;
const WHOLE = /^\{\{([^}]*)\}\}$/;

/** Returns the value with all placeholders replaced. */
export function fill(value: JsonValue, names: Map<string, JsonValue>): JsonValue {
  const known = (name: string): JsonValue => {
    const found = names.get(name);
    if (found === undefined) throw new Error(`nothing has the name ${name}`);
    return found;
  };
  if (typeof value === "string") {
    const whole = WHOLE.exec(value);
    if (whole) return known(whole[1] ?? "");
    return value.replace(PLACEHOLDERS, (_, name: string) => {
      const found = known(name);
      return typeof found === "string" ? found : JSON.stringify(found);
    });
  }
  if (Array.isArray(value)) return value.map((item) => fill(item, names));
  if (value === null || typeof value !== "object") return value;
  const filled = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fill(item, names)]));
  const keys = Object.keys(filled);
  if (keys.length === 1 && typeof filled["$text"] === "string") {
    return Buffer.from(filled["$text"]).toString("base64");
  }
  if (keys.length === 1 && typeof filled["$sha256"] === "string") {
    return createHash("sha256").update(filled["$sha256"]).digest("base64");
  }
  return filled;
}

/** Returns the value at a path. */
export function at(path: string, value: JsonValue): JsonValue {
  let found: JsonValue | undefined = value;
  for (const name of path.split(".")) {
    if (Array.isArray(found)) found = found[Number(name)];
    else if (found !== null && typeof found === "object") found = found[name];
    else found = undefined;
    if (found === undefined) throw new Error(`${path} leads nowhere`);
  }
  return found;
}
