// Writes the outcome of a step, so that runs and languages can be compared.

import { createHash } from "node:crypto";
import type { JsonObject, JsonValue, Rules } from "./scenario.js";

const LONGEST = 2_000;
const SHORTEST = 6;

/** The parts of an outcome other than name and status. */
export type Parts = Record<string, JsonValue>;

/** The rules of a scenario, and the values that have a number. */
export class Show {
  readonly #numbered = new Map<string, string>();
  readonly #counts = new Map<string, number>();

  constructor(private readonly rules: Rules) {}

  /** Returns the line of a step. */
  line(step: string, status: string, parts: Parts = {}): string {
    for (const name of ["details", "answer", "answers"]) this.#number(parts[name] ?? null);
    const shown = Object.entries(parts).map(([name, part]) => [name, this.#value(part)] as const);
    return written({ step, status, ...Object.fromEntries(shown) });
  }

  /** Numbers every new value that differs between runs. */
  #number(value: JsonValue): void {
    if (Array.isArray(value)) {
      for (const item of value) this.#number(item);
    } else if (value !== null && typeof value === "object") {
      for (const key of Object.keys(value).sort()) this.#numberField(key, value[key] ?? null);
    }
  }

  #numberField(key: string, value: JsonValue): void {
    if (key in this.rules.hidden || this.rules.text.includes(key)) return;
    const label = this.rules.numbered[key];
    const items = Array.isArray(value) ? value : [value];
    if (label === undefined || !items.every((item) => typeof item === "string")) {
      this.#number(value);
      return;
    }
    for (const item of items) {
      if (item === "" || this.#numbered.has(item)) continue;
      const count = (this.#counts.get(label) ?? 0) + 1;
      this.#counts.set(label, count);
      this.#numbered.set(item, `<${label}:${count}>`);
    }
  }

  /** Returns the value in its written form. */
  #value(value: JsonValue, key?: string): JsonValue {
    if (typeof value === "string") return this.#string(value, key);
    if (Array.isArray(value)) return value.map((item) => this.#value(item, key));
    if (value === null || typeof value !== "object") return value;
    const shown: JsonObject = {};
    for (const [name, item] of Object.entries(value)) {
      const label = this.rules.hidden[name];
      shown[name] = label === undefined ? this.#value(item, name) : `<${label}>`;
    }
    return shown;
  }

  #string(value: string, key?: string): string {
    if (key !== undefined && this.rules.text.includes(key)) {
      return shortened(this.#replaced(Buffer.from(value, "base64").toString()));
    }
    if (key !== undefined && key in this.rules.numbered && value !== "") {
      return this.#numbered.get(value) ?? value;
    }
    return shortened(this.#replaced(value));
  }

  #replaced(text: string): string {
    // The sort is stable: values of equal length stay in the order of their numbers.
    const known = [...this.#numbered].filter(([value]) => value.length >= SHORTEST);
    known.sort(([one], [other]) => other.length - one.length);
    for (const [value, shown] of known) text = text.replaceAll(value, () => shown);
    return text;
  }
}

function shortened(text: string): string {
  const size = Buffer.byteLength(text);
  if (size <= LONGEST) return text;
  return `<${size} bytes, sha256 ${createHash("sha256").update(text).digest("hex")}>`;
}

/** Returns canonical JSON: sorted keys, no whitespace, and one form of numbers. */
function written(value: JsonValue): string {
  if (Array.isArray(value)) return `[${value.map(written).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const fields = Object.keys(value).sort();
    return `{${fields.map((key) => `${written(key)}:${written(value[key] ?? null)}`).join(",")}}`;
  }
  if (typeof value === "number" && !Number.isInteger(value)) {
    return value.toFixed(6).replace(/0+$/, "").replace(/\.$/, "");
  }
  return JSON.stringify(value);
}
