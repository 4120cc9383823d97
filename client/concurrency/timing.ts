// Waiting that always ends: delays, limits and signals that leave no timer and no listener behind.
// All times are milliseconds on the monotonic clock (`performance.now()`), never the wall clock.

import { setMaxListeners } from 'node:events';
import { Timeout } from './errors.js';

/** setTimeout fires at once beyond this, so longer waits are taken in steps. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Resolves after `ms`; rejects with the signal's reason when that comes first. */
export async function delay(ms: number, signal?: AbortSignal): Promise<void> {
  const end = performance.now() + ms;
  for (let left = ms; left > 0; left = end - performance.now()) {
    // A promise of its own: on one that is shared and never settles the reactions would pile up.
    await within(Math.min(left, LONGEST_TIMER), signal, new Promise<never>(() => {}));
  }
  signal?.throwIfAborted();
}

/** What `within` resolves with when the time is over first. */
export const OVER = Symbol('over');

/**
 * Waits for `promise`, but no longer than `ms` (then resolves with `OVER`) and only until `signal`
 * aborts (then rejects with its reason). The promise itself goes on; if it rejects later, nobody
 * is bothered.
 */
export async function within<T>(
  ms: number,
  signal: AbortSignal | undefined,
  promise: Promise<T>,
): Promise<T | typeof OVER> {
  promise.catch(() => {});
  signal?.throwIfAborted();
  let timer: NodeJS.Timeout | undefined;
  let unlisten: (() => void) | undefined;
  try {
    return await new Promise<T | typeof OVER>((resolve, reject) => {
      promise.then(resolve, reject);
      if (ms <= LONGEST_TIMER) timer = setTimeout(resolve, Math.max(ms, 0), OVER);
      if (signal) unlisten = onAbort(signal, () => reject(signal.reason));
    });
  } finally {
    clearTimeout(timer);
    unlisten?.();
  }
}

/** Waits for `promise` until `signal` aborts, then rejects with its reason. */
export async function until<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  return (await within(Number.POSITIVE_INFINITY, signal, promise)) as T;
}

/** Passes on a time limit in milliseconds, if it can be one. */
export function checkTimeout<T extends number | undefined>(timeout: T): T {
  if (timeout === undefined || timeout >= 0) return timeout;
  throw new RangeError(`expected timeout to be milliseconds >= 0, got ${timeout}`);
}

/**
 * One signal out of several and a time limit. `AbortSignal.any` would do, but keeps its listeners
 * on a long-lived source until the result is collected; this one takes them off when disposed.
 * One signal alone is passed on as it is.
 */
export class Scope implements Disposable {
  readonly signal: AbortSignal;
  readonly #undo: (() => void)[] = [];

  /** `timeout`: milliseconds; aborts with `Timeout`. */
  constructor(signals: (AbortSignal | undefined)[], timeout?: number) {
    checkTimeout(timeout);
    // JavaScript may give a null.
    const sources = signals.filter((source) => !!source);
    const limit = timeout !== undefined && timeout <= LONGEST_TIMER ? timeout : undefined;
    const [sole] = sources;
    if (sole && sources.length === 1 && limit === undefined) {
      this.signal = sole;
      return;
    }
    const controller = new AbortController();
    this.signal = controller.signal;
    for (const source of sources) {
      const abort = () => controller.abort(source.reason);
      if (source.aborted) abort();
      this.#undo.push(onAbort(source, abort));
    }
    if (limit !== undefined) {
      const timer = setTimeout(() => controller.abort(new Timeout(limit)), limit);
      this.#undo.push(() => clearTimeout(timer));
    }
  }

  [Symbol.dispose](): void {
    for (const undo of this.#undo.splice(0)) undo();
  }
}

/** Returns how to undo it. */
function onAbort(signal: AbortSignal, abort: () => void): () => void {
  // Any number of waits may hang on one signal; that is no leak to be warned of.
  setMaxListeners(0, signal);
  signal.addEventListener('abort', abort);
  return () => signal.removeEventListener('abort', abort);
}
