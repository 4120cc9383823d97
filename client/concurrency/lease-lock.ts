// A lease lock as one object, for people who want no session: built on Session and Mutex. Two
// faults that are common in such locks are not in it: a token counted in the lock's value, which
// starts again at 1 when the key is gone, and a heartbeat that fails and goes on. The token is the
// key's create revision, and the lock is lost by the deadline.

import { randomUUID } from 'node:crypto';
import type { Etcd3 } from 'etcd3';
import { AlreadyHeld, LockConflict, Locked, LockLost, NotLocked } from './errors.js';
import { type LockOptions, Mutex } from './mutex.js';
import { Session, type SessionOptions } from './session.js';
import { Scope } from './timing.js';

/** A lock that is either taken at once or refused. */
export class LeaseLock implements AsyncDisposable {
  /** Identifies this object; the value of its key in etcd, so that others can see who holds. */
  readonly owner = randomUUID();
  readonly #etcd: Etcd3;
  readonly #ttl: number;
  #acquiring: { stop: AbortController; done: Promise<unknown> } | undefined;
  #session: Session | undefined;
  #mutex: Mutex | undefined;

  constructor(
    etcd: Etcd3,
    /** The name of the lock; its keys are `<key>/<lease ID in hex>`. */
    readonly key: string,
    /** `ttl`: seconds, a whole number. Default 10. */
    { ttl = 10 }: Pick<SessionOptions, 'ttl'> = {},
  ) {
    this.#etcd = etcd;
    this.#ttl = ttl;
  }

  /**
   * Takes the lock, or fails at once.
   *
   * @param options `timeout`: milliseconds for etcd to answer. Default 5000.
   * @returns the fencing token
   * @throws LockConflict when another holds it; AlreadyHeld when this object does; Unreachable or
   *   Timeout when etcd does not answer in time; the signal's reason; RangeError for the TTL
   */
  async acquire({ signal, timeout = 5000 }: LockOptions = {}): Promise<bigint> {
    if (this.#acquiring || this.isLocked) throw new AlreadyHeld(this.key);
    const stop = new AbortController();
    using scope = new Scope([signal, stop.signal], timeout);
    const acquired = this.#acquire(scope.signal);
    this.#acquiring = { stop, done: acquired.catch(() => {}) };
    try {
      return await acquired;
    } finally {
      this.#acquiring = undefined;
    }
  }

  /**
   * Releases the lock.
   *
   * @throws NotLocked; LockLost when it was lost before, so that somebody else may have held it;
   *   PermissionDenied when etcd refuses: then it ends with its lease
   */
  async release(): Promise<void> {
    const { session, mutex } = this.#forget();
    if (!session || !mutex) throw new NotLocked(this.key);
    const cause = session.expired ? session.signal.reason : undefined;
    try {
      if (session.expired || !(await mutex.unlock())) throw new LockLost(this.key, { cause });
    } finally {
      await session.close().catch(() => {});
    }
  }

  /** Whether the lock is held as far as the clock can tell, compared when it is read. */
  get isLocked(): boolean {
    return this.#session !== undefined && !this.#session.expired;
  }

  /** The create revision of the own key, which only grows from holder to holder; 0n when not held. */
  get fencingToken(): bigint {
    return this.isLocked ? (this.#mutex?.token ?? 0n) : 0n;
  }

  /**
   * Aborts once when the lock that is held now is lost or released; aborted when none is held. It
   * may come late: only the check at the resource protects.
   */
  get signal(): AbortSignal {
    return this.#session?.signal ?? AbortSignal.abort(new NotLocked(this.key));
  }

  /** Releases the lock if it is held, and ends an `acquire` that is under way. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#acquiring?.stop.abort(new NotLocked(this.key));
    await this.#acquiring?.done;
    const { session } = this.#forget();
    await session?.close();
  }

  async #acquire(signal: AbortSignal): Promise<bigint> {
    // Lost but not released: whoever asks again has not noticed, or does not mind.
    this.#forget()
      .session?.close()
      .catch(() => {});
    const session = await Session.create(this.#etcd, { ttl: this.#ttl, signal });
    const mutex = new Mutex(session, this.key, this.owner);
    try {
      await mutex.tryLock({ signal });
    } catch (error) {
      // In the background: its lease runs out by itself, and etcd may be the one that is silent.
      session.close().catch(() => {});
      throw error instanceof Locked ? new LockConflict(this.key, { cause: error }) : error;
    }
    this.#session = session;
    this.#mutex = mutex;
    return mutex.token;
  }

  #forget(): { session: Session | undefined; mutex: Mutex | undefined } {
    const held = { session: this.#session, mutex: this.#mutex };
    this.#session = undefined;
    this.#mutex = undefined;
    return held;
  }
}
