// The recommended form: a function that runs while a lock is held.

import type { Etcd3 } from 'etcd3';
import { type LockOptions, Mutex } from './mutex.js';
import { Session, type SessionOptions } from './session.js';
import { Scope, until } from './timing.js';

/** What `fn` gets to know of the lock it runs under. */
export interface Held {
  /** The fencing token: send it with every write, and have the resource check it. */
  token: bigint;
  /** Aborts when the lock is lost. It may come late: only the check at the resource protects. */
  signal: AbortSignal;
}

/**
 * Waits for the lock, runs `fn`, releases the lock whatever happens. Calls in one session exclude
 * each other too, unlike two mutexes in one session, so `fn` must not ask for the same lock again.
 *
 * @param owner a session to lock in, or a client: then there is a session just for this call
 * @param options `signal` and `timeout` (milliseconds, default: no limit) limit the wait for the
 *   lock, not `fn`; `ttl` (seconds, default 60) is for the session just for this call
 * @returns what `fn` returns; also throws what it throws. A release that fails changes neither:
 *   the lock is gone with its lease.
 * @throws as `Session.create` and `Mutex.lock`
 */
export async function withLock<T>(
  owner: Session | Etcd3,
  name: string,
  options: LockOptions & Pick<SessionOptions, 'ttl'>,
  fn: (held: Held) => T | Promise<T>,
): Promise<T> {
  using wait = new Scope([options.signal], options.timeout);
  const { signal } = wait;
  if (owner instanceof Session) return await inTurn(owner, name, wait, fn);
  const ttl = options.ttl === undefined ? {} : { ttl: options.ttl };
  const session = await Session.create(owner, { ...ttl, signal });
  try {
    return await runLocked(session, name, wait, fn);
  } finally {
    await session.close().catch(() => {});
  }
}

/** The last call under each name, in each session. */
const last = new WeakMap<Session, Map<string, Promise<unknown>>>();

async function inTurn<T>(
  session: Session,
  name: string,
  wait: Scope,
  fn: (held: Held) => T | Promise<T>,
): Promise<T> {
  const names = last.get(session) ?? new Map<string, Promise<unknown>>();
  last.set(session, names);
  const before = names.get(name) ?? Promise.resolve();
  const mine = until(wait.signal, before).then(() => runLocked(session, name, wait, fn));
  // Whoever comes next waits for those before too, should this one give up earlier.
  const both = Promise.allSettled([before, mine]).then(() => {
    if (names.get(name) === both) names.delete(name);
  });
  names.set(name, both);
  return await mine;
}

async function runLocked<T>(
  session: Session,
  name: string,
  wait: Scope,
  fn: (held: Held) => T | Promise<T>,
): Promise<T> {
  const mutex = new Mutex(session, name);
  await mutex.lock({ signal: wait.signal });
  wait[Symbol.dispose]();
  try {
    return await fn({ token: mutex.token, signal: session.signal });
  } finally {
    await mutex.unlock().catch(() => {});
  }
}
