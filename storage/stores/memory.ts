/**
 * The store of etcd's contrib/lock: a map in memory, gone with the process. Unlike upstream it
 * refuses an entry that would fill the heap, because running out of it would end the process.
 */
import { getHeapStatistics } from 'node:v8';
import { type Decision, type Entry, type Listing, NoRoom, type Store } from './store.js';

export class MemoryStore implements Store {
  readonly #entries = new Map<string, Entry>();
  readonly #limit: number;
  #size = 0;

  /** `limit` is in bytes, as {@link cost} estimates them; default: half of what the heap may be. */
  constructor(limit = getHeapStatistics().heap_size_limit / 2) {
    this.#limit = limit;
  }

  async read(key: string): Promise<Entry | undefined> {
    return this.#entries.get(key);
  }

  // Atomic because nothing in here awaits.
  async update(key: string, decide: (current: Entry | undefined) => Decision): Promise<Decision> {
    const current = this.#entries.get(key);
    const decision = decide(current);
    if ('refusal' in decision) return decision;
    const size = this.#size + cost(key, decision.entry) - (current ? cost(key, current) : 0);
    if (size > this.#limit) throw new NoRoom(`storage is full (${this.#limit} bytes)`);
    this.#size = size;
    this.#entries.set(key, decision.entry);
    return decision;
  }

  async list(limit: number): Promise<Listing> {
    const entries: [string, Entry][] = [];
    for (const each of this.#entries) {
      if (entries.length >= limit) break;
      entries.push(each);
    }
    return { entries, more: this.#entries.size > entries.length };
  }

  async check(): Promise<void> {}

  async close(): Promise<void> {}
}

/** Two bytes a character at most, and what the map, the objects and the bigint take around them. */
function cost(key: string, { val = '' }: Entry): number {
  return 2 * (key.length + val.length) + 256;
}
