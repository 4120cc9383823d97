// Leader election, after etcd's client/v3/concurrency/election.go: same keys, so that Go programs
// and `etcdctl elect` take part. It is the mutex's queue with a value: whoever is first leads.
// Different on purpose: a campaign checks its own key again before it reports success, and a late
// proclamation never overwrites a newer one.

import type { ITxnRequest } from 'etcd3';
import { NoLeader, NotLeader } from './errors.js';
import type { LockOptions } from './mutex.js';
import { CLEAN_UP, firstKey, oldest, Place, type Queued, rangeOf } from './queue.js';
import { rpc } from './rpc.js';
import type { Session } from './session.js';
import { checkTimeout, Scope, until, within } from './timing.js';
import { Watches } from './watch.js';

/** Who leads, and what it proclaimed last. */
export interface Leader {
  key: string;
  value: string;
  /** The create revision of the key: the fencing token of this leader. */
  token: bigint;
  /** The revision of the last proclamation. */
  modRevision: bigint;
}

/** One session's part in an election. */
export class Election {
  readonly #prefix: string;
  #place: Place | undefined;
  #own: Queued | undefined;

  constructor(
    /** The session whose end is the end of the leadership. */
    readonly session: Session,
    /** The name of the election; its keys are `<name>/<lease ID in hex>`. */
    readonly name: string,
  ) {
    this.#prefix = `${name}/`;
  }

  /**
   * Goes on as the leader that an earlier process was, by its key and token. Whether it still
   * leads shows at the next `proclaim`.
   */
  static resume(session: Session, name: string, leader: Pick<Leader, 'key' | 'token'>): Election {
    const election = new Election(session, name);
    // What it stands for shows with the next proclamation.
    const own = { key: leader.key, value: '', revision: leader.token, modRevision: 0n, lease: 0n };
    election.#place = Place.of(session, election.#prefix, leader.key);
    election.#place.resume(own);
    election.#own = own;
    return election;
  }

  /** The leader's key while this is the leader, as far as it knows; otherwise empty. */
  get key(): string {
    return this.#own?.key ?? '';
  }

  /** The fencing token: the create revision of the own key; 0n when not the leader. */
  get token(): bigint {
    return this.#own?.revision ?? 0n;
  }

  /**
   * Waits until this session leads, then stands for `value`.
   *
   * @throws SessionExpired when the session ends first, Timeout, or the signal's reason. After any
   *   of them nothing of ours is left in the queue, or it goes with the lease.
   */
  async campaign(value: string, { signal, timeout }: LockOptions = {}): Promise<void> {
    using scope = new Scope([this.session.signal, signal], timeout);
    const place = Place.of(this.session, this.#prefix);
    const own = await place.take(value, true, scope.signal);
    place.forget(this.#own);
    this.#own = own;
    this.#place = place;
    if (own.value === value) return;
    try {
      await this.#put(own, value, scope.signal);
    } catch (error) {
      await within(CLEAN_UP, undefined, this.resign());
      throw error;
    }
  }

  /**
   * Announces a new value without another election.
   *
   * @throws NotLeader when this is not, or no longer, the leader; otherwise as `campaign`
   */
  async proclaim(value: string, { signal, timeout }: LockOptions = {}): Promise<void> {
    if (!this.#own) throw new NotLeader();
    using scope = new Scope([this.session.signal, signal], timeout);
    await this.#put(this.#own, value, scope.signal);
  }

  /**
   * Gives the leadership up. Fine when this is not the leader, as in Go.
   *
   * @throws Unreachable or the signal's reason when etcd did not confirm in time (the resignation
   *   goes on in the background)
   */
  async resign(options: LockOptions = {}): Promise<void> {
    checkTimeout(options.timeout);
    const [place, own] = [this.#place, this.#own];
    this.#place = undefined;
    this.#own = undefined;
    if (!place || !own) return;
    await place.leave(own, options);
  }

  /**
   * Asks who leads now.
   *
   * @param options.timeout milliseconds. Default 5000.
   * @throws NoLeader; Unreachable when etcd does not answer in time; the signal's reason
   */
  async leader({ signal, timeout = 5000 }: LockOptions = {}): Promise<Leader> {
    const first = await oldest(this.session.etcd, this.#prefix, { signal, timeout });
    if (!first) throw new NoLeader();
    return leaderOf(first);
  }

  /**
   * Follows who leads and what it proclaims, beginning with the present leader. Not every value in
   * between need be seen, but the last one always is. Does not depend on the session. Leaving the
   * loop ends it; what ends it while it waits is the signal.
   *
   * @throws the signal's reason; PermissionDenied
   */
  async *observe({ signal }: Pick<LockOptions, 'signal'> = {}): AsyncGenerator<Leader, void, void> {
    const { etcd, ttl } = this.session;
    // A signal also where none was given.
    using scope = new Scope([signal]);
    let seen: Queued | undefined;
    for (;;) {
      const range = seen ? { key: Buffer.from(seen.key) } : rangeOf(this.#prefix);
      using watch = Watches.of(etcd).add(range, true);
      await until(scope.signal, watch.confirmed);
      const first = await oldest(etcd, this.#prefix, { signal: scope.signal });
      if (first?.modRevision !== seen?.modRevision) {
        seen = first;
        if (first) yield leaderOf(first);
      } else {
        // As a waiter does, it also looks without being told, once per TTL.
        await within(ttl * 1000, scope.signal, watch.changed);
      }
    }
  }

  /** Puts the value if the key still is as this leader left it, so that no late attempt can win. */
  async #put(own: Queued, value: string, signal: AbortSignal): Promise<void> {
    const key = Buffer.from(own.key);
    const { etcd, leaseId } = this.session;
    for (;;) {
      const guard = { key, result: 'Equal' } as const;
      const request: ITxnRequest = {
        compare: [
          { ...guard, target: 'Create', create_revision: String(own.revision) },
          { ...guard, target: 'Mod', mod_revision: String(own.modRevision) },
        ],
        success: [{ request_put: { key, value: Buffer.from(value), lease: String(leaseId) } }],
        failure: [{ request_range: { key } }],
      };
      const answer = await rpc((call) => etcd.kv.txn(request, call), { signal });
      if (answer.succeeded) {
        own.modRevision = BigInt(answer.header.revision);
        own.lease = leaseId;
        return;
      }
      const found = firstKey(answer.responses[0]?.response_range);
      if (found?.revision !== own.revision) {
        if (this.#own === own) await this.resign();
        throw new NotLeader();
      }
      // Put by an earlier attempt whose answer was lost, or by hand: go on from there.
      own.modRevision = found.modRevision;
      if (found.value === value && found.lease === leaseId) return;
    }
  }
}

function leaderOf({ key, value, revision, modRevision }: Queued): Leader {
  return { key, value, token: revision, modRevision };
}
