// A fair mutex on etcd, after client/v3/concurrency/mutex.go: same keys, same transaction, so that
// Go programs and `etcdctl lock` queue with it. What waits differently is in queue.ts.

import type { ICompare } from 'etcd3';
import { LockReleased, SessionExpired } from './errors.js';
import { Place, placeKey, type Queued } from './queue.js';
import type { Session } from './session.js';
import { checkTimeout, Scope } from './timing.js';

/** Limits of a wait. After them it may take half a second more, to leave nothing behind. */
export interface LockOptions {
  /** Ends the wait with the signal's reason. */
  signal?: AbortSignal;
  /**
   * Milliseconds to wait at most, then `Timeout`, or `Unreachable` if etcd was silent for most of
   * it. Default: no limit but the session's.
   */
  timeout?: number;
}

/**
 * A lock that one session at a time holds, first come, first served. Mutexes of the same name in
 * one session share it: the last of them to unlock frees it.
 */
export class Mutex {
  readonly #prefix: string;
  #place: Place | undefined;
  #own: Queued | undefined;

  constructor(
    /** The session whose end is the end of the lock. */
    readonly session: Session,
    /** The name of the lock; its keys are `<name>/<lease ID in hex>`. */
    readonly name: string,
    /** What to store in the own key, for others to see. Default empty, as in Go. */
    readonly value = '',
  ) {
    this.#prefix = `${name}/`;
  }

  /** The key of this session under the lock's name. */
  get key(): string {
    return placeKey(this.session, this.#prefix);
  }

  /**
   * The fencing token: the create revision of the own key, 0n when not locked. It only grows from
   * holder to holder, which lease IDs do not. Stays the same when the session locks again.
   */
  get token(): bigint {
    return this.#own?.revision ?? 0n;
  }

  /**
   * Waits for the lock. Locking again in the same session succeeds at once.
   *
   * @throws SessionExpired when the session ends first, Timeout, Unreachable, PermissionDenied, or
   *   the signal's reason. After any of them nothing of ours is left in the queue, or it goes with
   *   the lease.
   */
  async lock(options: LockOptions = {}): Promise<void> {
    await this.#acquire(true, options);
  }

  /**
   * Takes the lock if nobody else has it.
   *
   * @throws Locked when another session has it; otherwise as `lock`
   */
  async tryLock(options: LockOptions = {}): Promise<void> {
    await this.#acquire(false, options);
  }

  /**
   * Releases the lock. Frees only what this object locked: a late or repeated call never touches a
   * newer lock of the same session.
   *
   * @returns whether it was held until now; false when it had been lost
   * @throws LockReleased when this object holds no lock; Unreachable or the signal's reason when
   *   etcd did not confirm in time (the release goes on in the background); PermissionDenied when
   *   etcd refuses, and then the lock ends with the session
   */
  async unlock(options: LockOptions = {}): Promise<boolean> {
    checkTimeout(options.timeout);
    const [place, own] = [this.#place, this.#own];
    if (!place || !own) throw new LockReleased();
    this.#place = undefined;
    this.#own = undefined;
    return await place.leave(own, options);
  }

  /**
   * A comparison for a transaction that is to happen only while this lock is held, for
   * `etcd.kv.txn({ compare: [mutex.isOwner()], … })`. Never true when not locked.
   */
  isOwner(): ICompare {
    const revision = this.#own?.revision ?? -1n;
    return {
      key: Buffer.from(this.key),
      target: 'Create',
      result: 'Equal',
      create_revision: String(revision),
    };
  }

  /**
   * Throws unless the lock is held as far as the clock can tell. Right only for the moment of the
   * call: what must not happen twice needs the token checked at the resource.
   *
   * @throws LockReleased, SessionExpired
   */
  assertHeld(): void {
    if (!this.#own) throw new LockReleased();
    if (this.session.signal.aborted) throw this.session.signal.reason;
    if (this.session.expired) throw new SessionExpired('expired');
  }

  async #acquire(wait: boolean, { signal, timeout }: LockOptions): Promise<void> {
    using scope = new Scope([this.session.signal, signal], timeout);
    const place = Place.of(this.session, this.#prefix);
    const own = await place.take(this.value, wait, scope.signal);
    place.forget(this.#own);
    this.#own = own;
    this.#place = place;
  }
}

/** A mutex with Go's two plain verbs, as `concurrency.NewLocker` makes it. */
export class Locker {
  readonly #mutex: Mutex;

  constructor(session: Session, name: string) {
    this.#mutex = new Mutex(session, name);
  }

  /** Waits for the lock, without a limit but the session's. Throws as {@link Mutex.lock}. */
  lock(): Promise<void> {
    return this.#mutex.lock();
  }

  /** Throws as {@link Mutex.unlock}. */
  async unlock(): Promise<void> {
    await this.#mutex.unlock();
  }
}
