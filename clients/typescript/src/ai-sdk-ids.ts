// Call ids that the service accepts. It replaces other ids in a view, and the parts with these calls would not be found.

/** The ids that the service does not replace in a view of Anthropic's format. */
const ACCEPTED = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * The ids to sync for the calls of one conversation. Illegal ids, and those of several calls, get an alias. Some models
 * number the calls of each response from 0. An alias depends on the messages before it only, so each sync has the same.
 */
export class CallIds {
  readonly #counts = new Map<string, number>();
  /** The aliases of calls of the last response without a result, by their id. */
  readonly #open = new Map<string, string[]>();
  readonly #last = new Map<string, string>();
  readonly #originals = new Map<string, string>();

  /** Begins a message with calls. Later results belong to these calls, and not to earlier ones with the same id. */
  begin(ids: Iterable<string>): void {
    for (const id of ids) this.#open.delete(id);
  }

  /** Returns the id to sync for the next call. */
  ofCall(id: string): string {
    const earlier = this.#counts.get(id) ?? 0;
    this.#counts.set(id, earlier + 1);
    const synced = earlier === 0 && ACCEPTED.test(id) ? id : `call_${hashOf(`${earlier} ${id}`)}`;
    this.#open.set(id, [...(this.#open.get(id) ?? []), synced]);
    this.#last.set(id, synced);
    this.#originals.set(synced, id);
    return synced;
  }

  /** Returns the id to sync for the next result. Results of equal ids follow the order of their calls. */
  ofResult(id: string): string {
    return this.#open.get(id)?.shift() ?? this.#last.get(id) ?? id;
  }

  /** Returns the id of the conversation for a synced id. */
  original(synced: string): string {
    return this.#originals.get(synced) ?? synced;
  }
}

/** Returns the 64-bit FNV-1a hash of a text, in hexadecimal digits. */
function hashOf(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, "0");
}
