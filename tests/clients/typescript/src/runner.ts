// Plays a scenario against real servers: runner.js SCENARIO WORLD OUTPUT. See ../../README.md.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import {
  createRegistry,
  fromBinary,
  fromJson,
  toJson,
  type DescMessage,
  type DescMethod,
  type Message,
} from "@bufbuild/protobuf";
import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { file_google_rpc_error_details } from "../gen/google/rpc/error_details_pb.js";
import { AdminService } from "../gen/palimpsest/context/v1/admin_service_pb.js";
import { ContextService } from "../gen/palimpsest/context/v1/context_service_pb.js";
import { file_palimpsest_context_v1_errors } from "../gen/palimpsest/context/v1/errors_pb.js";
import { SessionService } from "../gen/palimpsest/context/v1/session_service_pb.js";
import { file_palimpsest_context_v1_view } from "../gen/palimpsest/context/v1/view_pb.js";
import { at, fill, makeText } from "./scenario.js";
import type { Check, JsonValue, Scenario, Step, World } from "./scenario.js";
import { Show, type Parts } from "./show.js";

const SERVICES = [AdminService, ContextService, SessionService];
const DETAILS = createRegistry(
  file_google_rpc_error_details,
  file_palimpsest_context_v1_errors,
  file_palimpsest_context_v1_view,
);
const LARGEST_MESSAGE = 32 << 20;

/** A message whose type is known only after the scenario is read. */
type Answer = Message & Record<string, unknown>;

/** A call in flight. */
interface Call {
  method: DescMethod;
  answers: AsyncIterator<Answer>;
  header: Headers;
  trailer: Headers;
  cancel: () => void;
}

/** The outcome of a call. */
interface Outcome {
  answers: Answer[];
  headers: Headers[];
  error?: ConnectError;
}

class Runner {
  readonly #names = new Map<string, JsonValue>();
  readonly #show: Show;
  readonly #transports = new Map<string, Transport>();
  readonly #held = new Map<string, Call>();
  readonly #arrays = new Map<string, Uint8Array[]>();

  constructor(scenario: Scenario, private readonly world: World) {
    for (const [name, recipe] of Object.entries(scenario.texts)) this.#names.set(name, makeText(recipe));
    this.#show = new Show(scenario.show);
    const ca = readFileSync(world.ca_file);
    for (const [name, address] of Object.entries(world.servers)) {
      const transport = createGrpcTransport({
        baseUrl: `https://${address}`,
        nodeOptions: { ca },
        readMaxBytes: LARGEST_MESSAGE,
        writeMaxBytes: LARGEST_MESSAGE,
      });
      this.#transports.set(name, transport);
    }
  }

  /** Plays one step and returns its line. */
  async play(step: Step): Promise<string> {
    if (step.release !== undefined) {
      this.#heldCall(step.release).cancel();
      this.#held.delete(step.release);
      return this.#show.line(step.name, "OK");
    }
    const method = step.resume === undefined ? methodOf(step) : this.#heldCall(step.resume).method;
    const outcome = await (method.methodKind === "unary" ? this.#ask(step, method) : this.#read(step, method));
    return this.#told(step, method, outcome);
  }

  #heldCall(name: string): Call {
    const call = this.#held.get(name);
    if (!call) throw new Error(`no call is held as ${name}`);
    return call;
  }

  /** Returns the parts of every call: connection, headers, request, and a way to cancel the call. */
  #prepared(step: Step, method: DescMethod) {
    const transport = this.#transports.get(step.server ?? "main");
    if (!transport) throw new Error(`there is no server ${step.server}`);
    const headers = new Headers(step.headers);
    const key = step.key === undefined ? "agent" : step.key;
    if (key !== null) headers.set("authorization", `Bearer ${this.world.keys[key]}`);
    const controller = new AbortController();
    const cancel = () => controller.abort();
    if (step.cancel_after_ms !== undefined) setTimeout(cancel, step.cancel_after_ms).unref();
    const request = fromJson(method.input, fill(step.request ?? {}, this.#names));
    const timeout = step.deadline_ms ?? 30_000;
    return { transport, headers, signal: controller.signal, cancel, request, timeout };
  }

  async #ask(step: Step, method: DescMethod): Promise<Outcome> {
    const { transport, headers, signal, request, timeout } = this.#prepared(step, method);
    try {
      const unary = method as DescMethod & { methodKind: "unary" };
      const answer = await transport.unary(unary, signal, timeout, headers, request);
      return { answers: [answer.message as Answer], headers: [answer.header, answer.trailer] };
    } catch (error) {
      return refused([], error);
    }
  }

  async #read(step: Step, method: DescMethod): Promise<Outcome> {
    const answers: Answer[] = [];
    try {
      const call = step.resume === undefined ? await this.#begin(step, method) : this.#heldCall(step.resume);
      while (answers.length !== step.read) {
        const next = await call.answers.next();
        if (next.done) break;
        answers.push(next.value);
      }
      if (step.hold !== undefined) this.#held.set(step.hold, call);
      else if (step.resume === undefined) call.cancel();
      return { answers, headers: [call.header, call.trailer] };
    } catch (error) {
      return refused(answers, error);
    }
  }

  async #begin(step: Step, method: DescMethod): Promise<Call> {
    const { transport, headers, signal, cancel, request, timeout } = this.#prepared(step, method);
    const streaming = method as DescMethod & { methodKind: "server_streaming" };
    const requests = (async function* () {
      yield request;
    })();
    const { message, header, trailer } = await transport.stream(streaming, signal, timeout, headers, requests);
    const answers = message[Symbol.asyncIterator]() as AsyncIterator<Answer>;
    return { method, answers, header, trailer, cancel };
  }

  /** Returns the line of a call. */
  #told(step: Step, method: DescMethod, { answers, headers, error }: Outcome): string {
    const parts: Parts = {};
    const values = answers.map((answer) => toJson(method.output, answer));
    const unary = method.methodKind === "unary";
    if (values.length > 0) parts[unary ? "answer" : "answers"] = unary ? (values[0] ?? null) : values;
    if (step.headers_shown) parts["headers"] = shownHeaders(step.headers_shown, headers);
    if (error) {
      if (!step.client_status) parts["message"] = error.rawMessage;
      const details = step.client_status ? [] : detailsOf(error);
      if (details.length > 0) parts["details"] = details;
      return this.#show.line(step.name, statusName(error.code), parts);
    }
    this.#look(step, answers, unary ? (values[0] ?? null) : values, parts);
    return this.#show.line(step.name, "OK", parts);
  }

  /** Processes the answers of a successful call: array, captures and checks. */
  #look(step: Step, answers: Answer[], value: JsonValue, parts: Parts): void {
    for (const [name, path] of Object.entries(step.capture ?? {})) this.#names.set(name, at(path, value));
    if (step.array !== undefined) {
      const array = this.#arrays.get(step.array) ?? [];
      this.#arrays.set(step.array, array);
      for (const answer of answers) {
        const keep = Number(answer["keepMessages"] ?? answer["firstMessageIndex"]);
        array.splice(keep, Infinity, ...(answer["messagesJson"] as Uint8Array[]));
      }
      parts["array"] = this.#arrayText(step.array).toString();
    }
    if (step.checks) {
      const checks = fill(step.checks as unknown as JsonValue, this.#names) as unknown as Check[];
      parts["checks"] = checks.map((check) => this.#holds(check, answers, value));
    }
  }

  #arrayText(name: string): Buffer {
    const elements = (this.#arrays.get(name) ?? []).map((element) => Buffer.from(element).toString());
    return Buffer.from(`[${elements.join(",")}]`);
  }

  /** Returns true if a check passes. */
  #holds(check: Check, answers: Answer[], value: JsonValue): boolean {
    if (check.value !== undefined) {
      return JSON.stringify(at(check.value, value)) === JSON.stringify(check.equals);
    }
    const wanted = String(check.equals);
    if (check.array !== undefined) return same(this.#arrayText(check.array), this.#arrayText(wanted));
    const field = check.bytes ?? "";
    const found = Buffer.concat(answers.map((answer) => answer[field] as Uint8Array));
    return same(found, Buffer.from(wanted).subarray(check.from, check.to));
  }
}

function methodOf(step: Step): DescMethod {
  const [service, name] = (step.call ?? "").split(".");
  const methods = SERVICES.find((it) => it.name === service)?.methods as DescMethod[] | undefined;
  const method = methods?.find((it) => it.name === name);
  if (!method) throw new Error(`there is no method ${step.call}`);
  return method;
}

function refused(answers: Answer[], reason: unknown): Outcome {
  // Any other error is a defect of the runner.
  if (!(reason instanceof ConnectError)) throw reason;
  return { answers, headers: [reason.metadata], error: reason };
}

/** Returns `NOT_FOUND` for `NotFound`. gRPC writes CANCELLED with two L. */
function statusName(code: Code): string {
  if (code === Code.Canceled) return "CANCELLED";
  return (Code[code] ?? "").replace(/(?<=.)[A-Z]/g, "_$&").toUpperCase();
}

/** Returns the details of a status, by the names of their types. */
function detailsOf(error: ConnectError): JsonValue[] {
  return error.details.flatMap((detail) => {
    if (!("type" in detail)) return [];
    const schema: DescMessage | undefined = DETAILS.getMessage(detail.type);
    if (!schema) throw new Error(`there is no type ${detail.type}`);
    return [{ type: detail.type, value: toJson(schema, fromBinary(schema, detail.value)) }];
  });
}

/** Returns headers, and trailers if a header does not exist. */
function shownHeaders(names: string[], headers: Headers[]): JsonValue {
  const shown: Record<string, string> = {};
  for (const name of names) {
    const value = headers.map((it) => it.get(name)).find((it) => it !== null);
    if (value !== undefined && value !== null) shown[name] = value;
  }
  return shown;
}

function same(one: Buffer, other: Buffer): boolean {
  const digest = (data: Buffer) => createHash("sha256").update(data).digest("hex");
  return digest(one) === digest(other);
}

async function main(scenarioFile: string, worldFile: string, outputFile: string): Promise<void> {
  const scenario = JSON.parse(readFileSync(scenarioFile, "utf8")) as Scenario;
  const runner = new Runner(scenario, JSON.parse(readFileSync(worldFile, "utf8")) as World);
  let lines = "";
  for (const step of scenario.steps) {
    try {
      lines += `${await runner.play(step)}\n`;
    } catch (error) {
      writeFileSync(outputFile, lines);
      throw new Error(`step ${step.name}`, { cause: error });
    }
  }
  writeFileSync(outputFile, lines);
}

const [scenarioFile = "", worldFile = "", outputFile = ""] = process.argv.slice(2);
await main(scenarioFile, worldFile, outputFile);
// Open connections and held calls would delay the end of the process.
process.exit(0);
