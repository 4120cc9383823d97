// Waiting for what can only be asked for, over and over: until it is so, and never without a limit.

import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds: where more is needed something is wrong. */
const LIMIT = 60_000;

/** @param what is waited for: `a key in the queue`; said when it does not come */
export async function until(
  what: string,
  done: () => boolean | Promise<boolean>,
  signal?: AbortSignal,
): Promise<void> {
  const end = performance.now() + LIMIT;
  while (!(await done())) {
    signal?.throwIfAborted();
    if (performance.now() > end) throw new Error(`expected ${what} within ${LIMIT / 1000} s`);
    await sleep(5);
  }
}
