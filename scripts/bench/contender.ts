// One who takes a lock over and over, and tells of its turns; and the check of all turns of a lock.
// With `puts` it makes raw puts while it holds, the last of which is timed: so a hand-over and a put are
// measured in turn. It comes back into the queue, by four calls, only when the lock has been handed over
// and before the next holder has made its puts: so what is timed is to one who waits, and nothing else.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Mutex, Session } from '../../client/concurrency/index.js';
import { now } from '../lab/history.js';

/** Times in milliseconds on the monotonic clock that all processes of a machine share. */
export type Turn = {
  readonly token: bigint;
  readonly granted: number;
  readonly released: number;
  /** How long the raw put took; 0: there was none. */
  readonly put: number;
  /** Whether the contender has had its warm-up. */
  readonly warm: boolean;
};

export type ContenderOptions = {
  /** Raw puts to make before the release. */
  readonly puts: number;
  /** Turns to have first, after as many puts, until Node has compiled what is measured. Default 0. */
  readonly warmUp?: number;
  /** Ends it, but not a turn that has begun. */
  readonly signal: AbortSignal;
};

/** Puts in whose time a lock is handed over. */
const HAND_OVER = 5;

/** Takes and releases the lock until the signal comes. */
export async function contend(
  session: Session,
  lock: Pick<Mutex, 'lock' | 'unlock' | 'token'>,
  { puts, warmUp = 0, signal }: ContenderOptions,
  onTurn: (turn: Turn) => void,
): Promise<void> {
  for (let i = 0; i < warmUp && puts > 0; i++) await rawPut(session);
  for (let turn = 0; ; turn++) {
    try {
      await lock.lock({ signal });
    } catch (error) {
      if (signal.aborted) return;
      throw error;
    }
    const { token } = lock;
    const granted = now();
    const warm = turn >= warmUp;
    let put = 0;
    for (let i = 0; warm && i < puts; i++) {
      const start = now();
      await rawPut(session);
      put = now() - start;
    }
    const released = now();
    if (!(await lock.unlock())) throw new Error('expected the lock to be held to the end');
    onTurn({ token, granted, released, put, warm });
    if (put > 0) await sleep(HAND_OVER * put);
  }
}

/** What hand-overs are compared with. */
export async function rawPut({ etcd }: Session): Promise<void> {
  await etcd.kv.put({ key: Buffer.from('raw'), value: Buffer.from('') });
}

/**
 * The times from each release to the next grant. Turns are in the order of their grants.
 *
 * @throws Error if two held the lock at a time, or if a later one came before an earlier one
 */
export function handOvers(turns: readonly Turn[]): number[] {
  return turns.slice(1).map(({ token, granted }, i) => {
    const before = turns[i];
    if (!before || granted < before.released) throw new Error('two held the lock at a time');
    if (token <= before.token) throw new Error('one who came later was served before');
    return granted - before.released;
  });
}
