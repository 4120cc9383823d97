/**
 * Entries in etcd, a key each, for any number of storage processes at once. An update is a compare
 * and swap: one transaction compares the key's mod revision, and the create revision of the lock
 * holder's key, and puts. An answer that was lost leaves open whether its transaction took effect:
 * each write carries an identifier of its own, by which the next attempt knows it again. Where that
 * does not help, the update is rejected as one that may have happened. Updates of one key that wait
 * at the same time share a transaction.
 */
import { randomBytes } from 'node:crypto';
import { type Etcd3, type ICompare, type IRequestOp, type IResponseOp, Range } from 'etcd3';
import { type CallOptions, isTransient, neverSent, rpc } from '../../client/concurrency/rpc.js';
import { decodeEntry, encodeEntry } from './entry.js';
import {
  type Decision,
  type Entry,
  type Holder,
  type Listing,
  NoRoom,
  type Store,
  Unavailable,
} from './store.js';

export class EtcdStore implements Store {
  readonly #etcd: Etcd3;
  readonly #prefix: string;
  /** Per key, while updates of it are under way, those that wait for their end. */
  readonly #waiting = new Map<string, Update[]>();

  /**
   * `etcd` stays the caller's. It must be one of `connect`: a client that sends a transaction again
   * by itself hides that an answer was lost. `prefix`: what all keys in etcd begin with, no lock's.
   */
  constructor(etcd: Etcd3, prefix: string) {
    if (prefix === '') throw new RangeError("expected prefix not to be empty, got ''");
    this.#etcd = etcd;
    this.#prefix = prefix;
  }

  async read(key: string): Promise<Entry | undefined> {
    try {
      return entryIn(await this.#look(this.#place(key), endsIn(LIMIT)));
    } catch (error) {
      throw unavailable(`cannot read ${quoted(key)}`, error);
    }
  }

  update(key: string, decide: Update['decide'], holder?: Holder): Promise<Decision> {
    return new Promise((resolve, reject) => {
      const update = { decide, holder, limits: endsIn(LIMIT), resolve, reject };
      const waiting = this.#waiting.get(key);
      if (waiting) waiting.push(update);
      else this.#work(key, [update]);
    });
  }

  /**
   * In the order of their keys; fewer when they are large. What somebody else put under the prefix
   * is left out.
   */
  async list(limit: number): Promise<Listing> {
    const limits = endsIn(LIMIT);
    const entries: [string, Entry][] = [];
    const { start, end } = Range.prefix(this.#prefix);
    let [key, more, bytes] = [start, true, 0];
    try {
      while (more && entries.length < limit && bytes < LISTED) {
        const request = {
          key,
          range_end: end,
          limit: Math.min(limit - entries.length, PAGE),
          // What one member knows is good enough to look at, also while it has no majority.
          serializable: true,
        };
        const answer = await rpc((call) => this.#etcd.kv.range(request, call), limits());
        for (const kv of answer.kvs) {
          const entry = tryDecode(kv.value.toString());
          if (entry) entries.push([kv.key.toString().slice(this.#prefix.length), entry]);
          key = Buffer.concat([kv.key, ZERO]);
          bytes += kv.value.length;
        }
        more = answer.more;
      }
      return { entries, more };
    } catch (error) {
      throw unavailable('cannot list the keys', error);
    }
  }

  async check(): Promise<void> {
    const request = { key: Buffer.from(this.#prefix), keys_only: true };
    try {
      await rpc((call) => this.#etcd.kv.range(request, call), { timeout: 2000, attempt: 500 });
    } catch (error) {
      throw unavailable('cannot read the data', error);
    }
  }

  async close(): Promise<void> {}

  /**
   * Does these updates and what joins them meanwhile. Those that wait at the same time are done in
   * one transaction, as if one came right after the other: so only processes compete for a key, and
   * its updates keep pace however many there are and however far away etcd is.
   */
  async #work(key: string, waiting: Update[]): Promise<void> {
    this.#waiting.set(key, waiting);
    for (let first = waiting.shift(); first; first = waiting.shift()) {
      const { holder } = first;
      const other = waiting.findIndex((update) => !areSame(update.holder, holder));
      await this.#settle(key, [first, ...waiting.splice(0, other < 0 ? waiting.length : other)]);
    }
    this.#waiting.delete(key);
  }

  /** Never rejects. */
  async #settle(key: string, batch: Batch): Promise<void> {
    try {
      for (const settle of await this.#update(key, batch)) settle();
    } catch (error) {
      if (error instanceof NoRoom && batch.length > 1) {
        // It may be one of them that is too large.
        for (const update of batch) await this.#settle(key, [update]);
      } else {
        for (const { reject } of batch) reject(error);
      }
    }
  }

  /** Returns what to tell the updates. Rejects with what to tell all of them. */
  async #update(key: string, batch: Batch): Promise<(() => void)[]> {
    // The one that has waited the longest has the least time left.
    const [{ holder, limits }] = batch;
    const place = this.#place(key, holder);
    const failed = `nothing was written to ${quoted(key)}`;
    let seen: Seen | undefined;
    while (limits().timeout > 0) {
      let current: Entry | undefined;
      try {
        seen ??= await this.#look(place, limits);
        current = entryIn(seen);
      } catch (error) {
        throw unavailable(failed, error);
      }
      const { entry, settle } = decideAll(batch, current, seen.gone);
      // Also with a holder nothing is put to leave an entry as it is: the entry and the lock were
      // seen at one moment, so at that moment it was there and the holder held the lock.
      if (!entry || entry === current) return settle;
      seen = await this.#put(key, entry, seen, place, limits);
      if (!seen) return settle;
    }
    throw new Unavailable(`${failed}: the updates before it took too long; try again`);
  }

  /** Linearizable, as is a transaction that only reads. */
  async #look(place: Place, limits: Remaining): Promise<Seen> {
    const request = { success: reads(place) };
    const { responses } = await rpc((call) => this.#etcd.kv.txn(request, call), limits());
    return seenIn(responses, place);
  }

  /** Undefined when the entry was put, else what was there instead of what had been seen. */
  async #put(
    key: string,
    entry: Entry,
    seen: Seen,
    place: Place,
    limits: Remaining,
  ): Promise<Seen | undefined> {
    const id = randomBytes(9).toString('base64url');
    const value = Buffer.from(`${id} ${encodeEntry(entry)}`);
    const request = {
      compare: comparisons(seen, place),
      success: [{ request_put: { key: place.key, value } }],
      failure: reads(place),
    };
    const nothing = `nothing was written to ${quoted(key)}`;
    const unknown = `the write of ${quoted(key)} may have happened`;
    /** Attempts that may have taken effect, or may yet. */
    let open = 0;
    const attempt = async (call: CallOptions) => {
      open++;
      try {
        return await this.#etcd.kv.txn(request, call);
      } catch (error) {
        const full = noRoom(nothing, error);
        if (full ? !isFull(error) : neverSent(error) || !isTransient(error)) open--;
        throw full ?? error;
      }
    };
    let found: Seen;
    let denied = false;
    try {
      const answer = await rpc(attempt, limits());
      if (answer.succeeded) return undefined;
      found = seenIn(answer.responses, place);
    } catch (error) {
      const full = error instanceof NoRoom;
      if (open === 0) throw full ? error : unavailable(nothing, error);
      denied = full && isFull(error.cause);
      if (open > 1 || !denied) {
        throw unavailable(`${unknown}, or may yet`, full ? error.cause : error);
      }
      // The attempt is over, but etcd answers so too when it put the entry and this filled it.
      found = await this.#look(place, limits).catch((silent) => {
        throw unavailable(unknown, silent);
      });
      if (found.revision === seen.revision) throw error;
    }
    if (found.text?.startsWith(`${id} `)) return undefined;
    // The key changed, so no attempt can take effect from now on (unless it was not there at first
    // and somebody deletes it); but one may have done so before the last change. If it did not
    // change, none has, and only the holder is gone. That is for good, as no key gets the same
    // create revision again: none will.
    if ((open > 1 || denied) && found.revision !== seen.revision) {
      throw new Unavailable(`${unknown}: etcd did not say so, and another write came after it`);
    }
    return found;
  }

  #place(key: string, holder?: Holder): Place {
    return { key: Buffer.from(this.#prefix + key), holder };
  }
}

/** Milliseconds for a call of the store in all. */
const LIMIT = 5000;
/** Entries to ask for at once: two of the largest that etcd takes fit into gRPC's 4 MiB. */
const PAGE = 2;
/** Bytes after which a listing ends. */
const LISTED = 2 ** 23;
const ZERO = Buffer.from([0]);

/** What is left of a call's time, whenever it is asked. */
type Remaining = () => { timeout: number };

type Update = {
  readonly decide: (current: Entry | undefined) => Decision;
  readonly holder: Holder | undefined;
  readonly limits: Remaining;
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
};

/** Updates of one key, with the same holder, in the order they came. */
type Batch = readonly [Update, ...Update[]];

/** What an update is about: its key in etcd, and who has to hold the lock. */
type Place = { readonly key: Buffer; readonly holder: Holder | undefined };

/** A key as it was at one moment. */
type Seen = {
  /** The value; undefined for a key that is not there. */
  readonly text: string | undefined;
  /** The mod revision; 0 for a key that is not there. */
  readonly revision: string;
  /** The refusal, when the one who has to hold the lock did not hold it at that moment. */
  readonly gone: string | undefined;
};

/** What is there in the end, and what to tell the updates once it is. */
function decideAll(batch: Batch, current: Entry | undefined, gone: string | undefined) {
  let entry = current;
  const settle = batch.map(({ decide, resolve, reject }) => {
    try {
      const decision = gone === undefined ? decide(entry) : { refusal: gone };
      if ('entry' in decision) entry = decision.entry;
      return () => resolve(decision);
    } catch (error) {
      return () => reject(error);
    }
  });
  return { entry, settle };
}

function areSame(a: Holder | undefined, b: Holder | undefined): boolean {
  return a && b ? a.token === b.token && a.key.equals(b.key) : a === b;
}

function reads({ key, holder }: Place): IRequestOp[] {
  const read = { request_range: { key } };
  return holder ? [read, { request_range: { key: holder.key, keys_only: true } }] : [read];
}

function seenIn([own, lock]: IResponseOp[], { holder }: Place): Seen {
  const kv = own?.response_range.kvs[0];
  const token = lock?.response_range.kvs[0]?.create_revision;
  return {
    text: kv?.value.toString(),
    revision: kv?.mod_revision ?? '0',
    gone: holder && token !== String(holder.token) ? holder.gone : undefined,
  };
}

function comparisons({ revision }: Seen, { key, holder }: Place): ICompare[] {
  const unchanged: ICompare = { key, target: 'Mod', result: 'Equal', mod_revision: revision };
  if (!holder) return [unchanged];
  const create_revision = String(holder.token);
  return [unchanged, { key: holder.key, target: 'Create', result: 'Equal', create_revision }];
}

function entryIn({ text }: Seen): Entry | undefined {
  if (text === undefined) return undefined;
  const entry = tryDecode(text);
  if (entry) return entry;
  throw new SyntaxError(
    `its value in etcd was not put there by storage: "${text.slice(0, 40)}"; delete it or give storage a prefix of its own`,
  );
}

/** `<id> <entry>`, or undefined for what {@link EtcdStore} did not write. */
function tryDecode(text: string): Entry | undefined {
  const [id] = /^[\w-]{12} /.exec(text) ?? [];
  if (id === undefined) return undefined;
  try {
    return decodeEntry(text.slice(id.length));
  } catch {
    return undefined;
  }
}

function endsIn(ms: number): Remaining {
  const end = performance.now() + ms;
  return () => ({ timeout: Math.max(end - performance.now(), 0) });
}

/** Whether etcd said that it has no space; it may have put the entry all the same. */
function isFull(error: unknown): boolean {
  return /database space exceeded/.test((error as Error).message);
}

function noRoom(what: string, error: unknown): NoRoom | undefined {
  const why = isFull(error)
    ? 'etcd is full; give it a larger quota or make room'
    : /request is too large|larger than max/.test((error as Error).message)
      ? "it is larger than etcd's --max-request-bytes"
      : undefined;
  return why ? new NoRoom(`${what}: ${why}`, { cause: error }) : undefined;
}

function quoted(key: string): string {
  return `'${key.length > 100 ? `${key.slice(0, 100)}...` : key}'`;
}

function unavailable(what: string, error: unknown): Unavailable {
  return new Unavailable(`${what}: ${(error as Error).message}`, { cause: error });
}
