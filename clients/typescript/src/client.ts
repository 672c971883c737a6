// The client of a server.

import { type ApiRequest, type CallOptions, type ClientOptions, Transport } from "./http.js";
import { type ListOptions, list, Session, sessionsPath } from "./session.js";
import type { SessionInfo } from "./wire.js";

let shared: Palimpsest | undefined;

/** Returns the client of adapters without the option `client`. The first call creates it from the environment. */
export function defaultClient(): Palimpsest {
  shared ??= new Palimpsest();
  return shared;
}

/** A client of a server. It keeps no connection open and needs no closing. */
export class Palimpsest {
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
  }

  /** Returns a session of a project. Nothing is sent. */
  session(project: string, session: string): Session {
    return new Session(this.#transport, project, session);
  }

  /** Returns the sessions of a project. */
  sessions(
    project: string,
    options: Omit<ListOptions, "descending"> & { filter?: Record<string, string> } = {},
  ): AsyncGenerator<SessionInfo, void, void> {
    const entries = Object.entries(options.filter ?? {}).map(([field, value]) => [`filter.${field}`, value]);
    return list(this.#transport, "sessions", sessionsPath(project), options, Object.fromEntries(entries));
  }

  /** Makes any call of the API: `GET /openapi.json` of the server describes them. */
  call<Reply>(request: ApiRequest, options?: CallOptions): Promise<Reply> {
    return this.#transport.call(request, options);
  }
}
