// The recommended form: a function that runs while a lock is held.

import type { Etcd3 } from 'etcd3';
import { type LockOptions, Mutex } from './mutex.js';
import { Session, type SessionOptions } from './session.js';

/** What `fn` gets to know of the lock it runs under. */
export interface Held {
  /** The fencing token: send it with every write, and have the resource check it. */
  token: bigint;
  /** Aborts when the lock is lost. It may come late: only the check at the resource protects. */
  signal: AbortSignal;
}

/**
 * Waits for the lock, runs `fn`, releases the lock whatever happens.
 *
 * @param owner a session to lock in, or a client: then there is a session just for this call
 * @param options `signal` and `timeout` (milliseconds) limit the wait for the lock, not `fn`;
 *   `ttl` (seconds, default 60) is for the session, if there is one just for this call
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
  if (owner instanceof Session) return await runLocked(owner, name, options, fn);
  const session = await Session.create(owner, options);
  try {
    return await runLocked(session, name, options, fn);
  } finally {
    await session.close().catch(() => {});
  }
}

async function runLocked<T>(
  session: Session,
  name: string,
  options: LockOptions,
  fn: (held: Held) => T | Promise<T>,
): Promise<T> {
  const mutex = new Mutex(session, name);
  await mutex.lock(options);
  try {
    return await fn({ token: mutex.token, signal: session.signal });
  } finally {
    await mutex.unlock().catch(() => {});
  }
}
