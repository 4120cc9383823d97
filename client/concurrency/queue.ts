// The queue behind a lock: keys under one prefix, ordered by create revision, each bound to the
// lease of its session. The oldest key holds. After waitDeletes in etcd's
// client/v3/concurrency/key.go and tryAcquire in mutex.go. Different on purpose:
// - a waiter watches its own key too, not only the nearest earlier one: it learns when it is gone;
// - every delete names the create revision it means, so that a late one never hits a newer key;
// - what cannot be cleaned up at once is cleaned up later, for as long as the session lives.

import { type Etcd3, EtcdLeaseInvalidError, type IRangeResponse, type ITxnRequest } from 'etcd3';
import { Locked, SessionExpired, Timeout, Unreachable } from './errors.js';
import { type CallOptions, isTransient, type Limits, neverSent, rpc } from './rpc.js';
import type { Session } from './session.js';
import { delay, OVER, Scope, until, within } from './timing.js';
import { type Range, Watches } from './watch.js';

/**
 * The one place a session has in the queue under a prefix. Several holders of the same session may
 * share it: they get the same revision, and the last of them to leave frees it.
 */
export class Place {
  static readonly #of = new WeakMap<Session, Map<string, Place>>();

  /** `<prefix><lease ID in hex>`, as in Go. */
  readonly key: string;
  readonly #session: Session;
  readonly #queue: Required<Range>;
  /** What has been granted and not yet left: each grant is an object of its own. */
  readonly #holders = new Set<Queued>();
  /** Attempts under way or waiting for their turn; the last of them. */
  #attempts = 0;
  #tail: Promise<unknown> = Promise.resolve();
  /** Requests to join that are on their way, also when nobody waits for them any more. */
  readonly #joining = new Set<Promise<unknown>>();
  /** How many of them ended without an answer: each may take effect at any later time. */
  #unanswered = 0;
  /** How many deletions have begun, and ended; the last of them. */
  #begun = 0;
  #ended = 0;
  #deleting: Promise<unknown> = Promise.resolve();
  /** Aborted while the attempt under way has others before it: for those after it that do not wait. */
  #behind = new AbortController();
  #sweeping: { stop: AbortController; done: Promise<void> } | undefined;

  private constructor(session: Session, prefix: string, key: string) {
    this.#session = session;
    this.#queue = rangeOf(prefix);
    this.key = key;
  }

  /** `key`: default the one of {@link placeKey}; another one only to resume what was left behind. */
  static of(session: Session, prefix: string, key = placeKey(session, prefix)): Place {
    const places = Place.#of.get(session) ?? new Map<string, Place>();
    Place.#of.set(session, places);
    const place = places.get(key) ?? new Place(session, prefix, key);
    places.set(key, place);
    return place;
  }

  /**
   * Joins the queue and, if `wait`, waits until no earlier key is left. Attempts of the same
   * session go one after another.
   *
   * @param value for the key, if it is not there already
   * @returns the own key as it was when joining, now the oldest: the ticket to leave with
   * @throws Locked when somebody else is first and `wait` is false; SessionExpired; the signal's
   *   reason. After any of them the own key is gone, or goes as soon as etcd can be reached, or
   *   with its lease.
   */
  async take(value: string, wait: boolean, signal: AbortSignal): Promise<Queued> {
    const before = this.#tail;
    const turn = this.#turn(before, wait, signal);
    const attempt = turn.then(() => this.#take(value, wait, signal));
    // Whoever comes next waits for those before too, should this attempt give up earlier.
    this.#tail = Promise.allSettled([before, attempt]).then(() => {});
    this.#attempts++;
    try {
      return await attempt;
    } finally {
      this.#attempts--;
      this.#settle();
    }
  }

  /** Hands the own key over to `own`: from now on it is the only ticket to leave with. */
  resume(own: Queued): void {
    this.#holders.clear();
    this.#holders.add(own);
  }

  /** Gives up a ticket for which there is a newer one, and keeps the place. */
  forget(own: Queued | undefined): void {
    if (own) this.#holders.delete(own);
  }

  /**
   * Deletes the own key if it still is the one that was granted and nobody else holds it.
   * Resolves when it is known to be gone, be it with its lease.
   *
   * @returns whether it was there until now, as far as can be told
   * @throws the signal's reason, or Unreachable after the timeout; the deletion goes on in the
   *   background; PermissionDenied
   */
  async leave(
    own: Queued,
    { signal, timeout = Number.POSITIVE_INFINITY }: Pick<Limits, 'signal' | 'timeout'>,
  ): Promise<boolean> {
    if (!this.#holders.delete(own)) return false;
    if (this.#isHeld(own.revision)) return true;
    const left = await within(timeout, signal, this.#delete(own.revision));
    if (left !== OVER) return left;
    // It is etcd that makes this one wait, and nobody else.
    const cause = new Timeout(timeout);
    throw new Unreachable(`no answer to the release within ${timeout} ms`, { cause });
  }

  /** For one who does not wait, an attempt before it that has to wait is an answer too. */
  async #turn(before: Promise<unknown>, wait: boolean, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    // All before it have ended. What they left to be deleted is waited for later.
    if (this.#attempts === 0) return;
    using scope = new Scope([signal, wait ? undefined : this.#behind.signal]);
    await until(scope.signal, before).catch(() => {
      signal.throwIfAborted();
      throw new Locked();
    });
  }

  async #take(value: string, wait: boolean, signal: AbortSignal): Promise<Queued> {
    let revision: bigint | undefined;
    let joined = false;
    try {
      let begun: number;
      let own: Queued;
      let ahead: Queued | undefined;
      do {
        signal.throwIfAborted();
        // A deletion under way must be answered first: it could hit the key that is found here. While
        // one is waited for, another may begin.
        this.#sweeping?.stop.abort();
        while (this.#isDeleting) {
          await until(signal, Promise.all([this.#deleting, this.#sweeping?.done]));
        }
        begun = this.#begun;
        joined = true;
        ({ own, ahead } = await this.#enter(value, signal));
        // Again, if another holder has left meanwhile: what was found here goes with it.
      } while (begun !== this.#begun);
      revision = own.revision;
      if (ahead) {
        if (!wait) throw new Locked();
        this.#behind.abort();
        await this.#waitForTurn(own, ahead, signal);
      }
      if (this.#session.expired) throw new SessionExpired('expired');
      // Not a tick after the last check: who leaves from now on sees that the key is in use.
      this.#holders.add(own);
      return own;
    } catch (error) {
      const cleaned = joined ? this.#abandon(revision) : Promise.resolve();
      // Most often this is done in no time. If etcd does not answer, the caller need not wait.
      if (!this.#session.expired) await within(CLEAN_UP, undefined, cleaned);
      throw error instanceof EtcdLeaseInvalidError
        ? new SessionExpired('revoked', { cause: error })
        : error;
    } finally {
      if (this.#behind.signal.aborted) this.#behind = new AbortController();
    }
  }

  /**
   * One transaction: joins the queue unless already in it, and reads who is ahead. That is the
   * nearest earlier key, or the oldest of them if the own key was there already; nobody when it is
   * the own key's turn.
   */
  async #enter(value: string, signal: AbortSignal) {
    const key = Buffer.from(this.key);
    const lease = this.#session.leaseId;
    const put = { key, value: Buffer.from(value), lease: String(lease) };
    const newest = byAge(this.#queue, 'Descend', 2);
    const request: ITxnRequest = {
      compare: [{ key, target: 'Create', result: 'Equal', create_revision: '0' }],
      success: [{ request_put: put }, { request_range: newest }],
      failure: [{ request_range: { key } }, { request_range: byAge(this.#queue, 'Ascend') }],
    };
    const join = (call: CallOptions) => this.#track(this.#session.etcd.kv.txn(request, call));
    const answer = await rpc(join, { signal, attempt: this.#attempt });
    const [first, second] = answer.responses.map(({ response_range }) => response_range);
    if (!answer.succeeded) {
      const [own, oldest] = [firstKey(first), firstKey(second)];
      if (!own || !oldest)
        throw new Error(`expected etcd to have ${this.key}, which it says it has`);
      return { own, ahead: oldest.revision === own.revision ? undefined : oldest };
    }
    const revision = BigInt(answer.header.revision);
    const own = { key: this.key, value, revision, modRevision: revision, lease };
    // The newest is the one just put.
    return { own, ahead: keysOf(second)[1] };
  }

  /** Its first reaction is ours: when whoever waits for it goes on, it has been struck off. */
  #track<T>(joining: Promise<T>): Promise<T> {
    const end = () => this.#joining.delete(joining);
    joining.then(end, (error) => {
      end();
      if (isTransient(error) && !neverSent(error)) this.#unanswered++;
    });
    this.#joining.add(joining);
    return joining;
  }

  async #waitForTurn(own: Queued, first: Queued, signal: AbortSignal): Promise<void> {
    const watches = Watches.of(this.#session.etcd);
    let ahead: Queued | undefined = first;
    while (ahead) {
      using ownWatch = watches.add({ key: Buffer.from(own.key) });
      using aheadWatch = watches.add({ key: Buffer.from(ahead.key) });
      let told = false;
      const changed = Promise.race([ownWatch.changed, aheadWatch.changed]).then(() => {
        told = true;
      });
      await until(signal, Promise.all([ownWatch.confirmed, aheadWatch.confirmed]));
      // A watch tells one thing, once, so it is watched anew after the first look that begins then.
      let last = told;
      let [next, another] = await this.#lookAhead(own, signal);
      // Once per TTL it looks without being told: its member may be cut off from the others. And etcd
      // sets a watch aside that is created while somebody writes: who is next does not wait for that.
      const ttl = this.#session.ttl * 1000;
      for (const patience of another ? [ttl] : [...SET_ASIDE, ttl]) {
        if (last || next?.revision !== ahead.revision) break;
        await within(patience, signal, changed);
        last = told;
        [next] = await this.#lookAhead(own, signal);
      }
      ahead = next;
    }
  }

  /**
   * The two nearest keys before the own one, read in one transaction with the own key.
   *
   * @throws SessionExpired when the own key is gone
   */
  async #lookAhead(own: Queued, signal: AbortSignal): Promise<Queued[]> {
    const nearest = {
      ...byAge(this.#queue, 'Descend', 2),
      max_create_revision: String(own.revision - 1n),
    };
    const request: ITxnRequest = {
      success: [{ request_range: { key: Buffer.from(own.key) } }, { request_range: nearest }],
    };
    const { responses } = await rpc((call) => this.#session.etcd.kv.txn(request, call), {
      signal,
      attempt: this.#attempt,
    });
    const found = firstKey(responses[0]?.response_range);
    if (found?.revision !== own.revision) throw new SessionExpired('revoked');
    return keysOf(responses[1]?.response_range);
  }

  /** Leaves nothing of a failed attempt behind that another holder does not use. Never rejects. */
  async #abandon(revision: bigint | undefined): Promise<void> {
    if (revision !== undefined && this.#isHeld(revision)) return;
    // Refused by etcd: then the key goes with the session.
    await this.#delete(revision).catch(() => {});
  }

  get #isDeleting(): boolean {
    return this.#begun !== this.#ended || this.#sweeping !== undefined;
  }

  #isHeld(revision: bigint): boolean {
    return [...this.#holders].some((own) => own.revision === revision);
  }

  /**
   * Deletes the own key: the one of `revision`, or whichever is found and not held. Resolves when
   * that is answered, or when the session is over and the key goes with the lease.
   *
   * @returns whether it was there until now, as far as can be told
   * @throws what etcd answers when it refuses
   */
  #delete(revision: bigint | undefined): Promise<boolean> {
    this.#begun++;
    const deleted = this.#deleting
      .then(() => this.#deleteOnce(revision))
      .finally(() => {
        this.#ended++;
        this.#settle();
      });
    this.#deleting = deleted.catch(() => {});
    return deleted;
  }

  async #deleteOnce(revision: bigint | undefined): Promise<boolean> {
    const { etcd, signal, deadline } = this.#session;
    const limits = {
      ...(signal.aborted ? { timeout: Math.max(deadline - performance.now(), 0) } : { signal }),
      attempt: this.#attempt,
    };
    const key = Buffer.from(this.key);
    try {
      let found = revision;
      if (found === undefined) {
        // A look before the answer to a request to join could miss its key.
        const answered = Promise.allSettled(this.#joining);
        await (signal.aborted ? answered : until(signal, answered));
        const answer = await rpc((call) => etcd.kv.range({ key }, call), limits);
        found = firstKey(answer)?.revision;
        if (found === undefined || this.#isHeld(found)) return false;
      }
      const request: ITxnRequest = {
        compare: [{ key, target: 'Create', result: 'Equal', create_revision: String(found) }],
        success: [{ request_delete_range: { key } }],
      };
      let attempts = 0;
      const answer = await rpc((call) => {
        attempts++;
        return etcd.kv.txn(request, call);
      }, limits);
      // Not there any more: then an earlier attempt may have deleted it and lost its answer.
      return answer.succeeded || attempts > 1;
    } catch (error) {
      // The session is over, and the key goes with the lease.
      if (signal.aborted) return false;
      throw error;
    }
  }

  /** Called when something ended: if nothing else is going on, sees to what may be left behind. */
  #settle(): void {
    if (this.#attempts + this.#holders.size > 0 || this.#isDeleting) return;
    if (this.#joining.size + this.#unanswered > 0 && !this.#session.signal.aborted) {
      const stop = new AbortController();
      this.#sweeping = { stop, done: this.#sweep(stop.signal) };
    } else {
      Place.#of.get(this.#session)?.delete(this.key);
    }
  }

  /** For as long as a request to join may still take effect, looks for its key and deletes it. */
  async #sweep(stop: AbortSignal): Promise<void> {
    using scope = new Scope([this.#session.signal, stop]);
    while (this.#joining.size + this.#unanswered > 0 && !scope.signal.aborted) {
      await this.#deleteOnce(undefined).catch(() => {});
      if (this.#unanswered > 0) await delay(this.#interval, scope.signal).catch(() => {});
    }
    this.#sweeping = undefined;
    this.#settle();
  }

  /** Milliseconds between two looks for what a late request may have left. */
  get #interval(): number {
    return (this.#session.ttl * 1000) / 3;
  }

  /** Milliseconds for a first attempt at a call: a short lease leaves little time for a second. */
  get #attempt(): number {
    return Math.min(this.#interval, FIRST_ATTEMPT);
  }
}

/** The key that a session has in the queue under `prefix`. */
export function placeKey(session: Session, prefix: string): string {
  return prefix + session.leaseId.toString(16);
}

/** The oldest key under `prefix`: whose turn it is. */
export async function oldest(
  etcd: Etcd3,
  prefix: string,
  limits: Limits,
): Promise<Queued | undefined> {
  const request = byAge(rangeOf(prefix), 'Ascend');
  return firstKey(await rpc((call) => etcd.kv.range(request, call), limits));
}

/** All keys that start with `prefix`. */
export function rangeOf(prefix: string): Required<Range> {
  const key = Buffer.from(prefix);
  const end = Buffer.from(prefix);
  // A prefix here ends in "/", so there is always room for one more.
  end.writeUInt8(end.readUInt8(end.length - 1) + 1, end.length - 1);
  return { key, range_end: end };
}

/** A key in the queue. */
export interface Queued {
  key: string;
  value: string;
  /** The create revision: its place. */
  revision: bigint;
  modRevision: bigint;
  /** The ID of the lease it is bound to. */
  lease: bigint;
}

/** Milliseconds for a first attempt at a call, with a lease that is long enough. */
const FIRST_ATTEMPT = 1000;
/** Milliseconds from one look to the next: after 100 ms etcd serves the watches it has set aside. */
const SET_ASIDE = [25, 25, 25, 25, 25];
/** Milliseconds that a failed attempt waits for its own clean-up at most. */
export const CLEAN_UP = 500;

export function firstKey(answer: IRangeResponse | undefined): Queued | undefined {
  return keysOf(answer)[0];
}

function keysOf(answer: IRangeResponse | undefined): Queued[] {
  return (answer?.kvs ?? []).map((kv) => ({
    key: kv.key.toString(),
    value: kv.value.toString(),
    revision: BigInt(kv.create_revision),
    modRevision: BigInt(kv.mod_revision),
    lease: BigInt(kv.lease),
  }));
}

/** The oldest keys of a range, or the newest. */
function byAge({ key, range_end }: Required<Range>, sort_order: 'Ascend' | 'Descend', limit = 1) {
  return { key, range_end, sort_target: 'Create', sort_order, limit } as const;
}
