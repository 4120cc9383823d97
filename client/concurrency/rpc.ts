// One unary call to etcd that always ends. etcd3 sets no deadline and its own retries share the
// caller's; here every attempt has a deadline of its own, so that a frozen member costs one attempt
// and the next one goes elsewhere.

import {
  EtcdAuthenticationFailedError,
  EtcdPermissionDeniedError,
  GRPCDeadlineExceededError,
  GRPCUnavailableError,
  isRecoverableError,
} from 'etcd3';
import { PermissionDenied, Timeout, Unreachable } from './errors.js';
import { checkTimeout, delay, OVER, within } from './timing.js';

export interface Limits {
  /** Ends the call with the signal's reason. What was sent may still take effect. */
  signal?: AbortSignal | undefined;
  /** Milliseconds for all attempts together, then `Unreachable`. Default: no limit. */
  timeout?: number | undefined;
  /** Milliseconds for the first attempt; doubled after each in vain, up to 5000. Default 1000. */
  attempt?: number | undefined;
}

/** gRPC call options: `deadline` is wall-clock milliseconds, used up at once by the client. */
export interface CallOptions {
  deadline: number;
}

/**
 * Calls until there is an answer or an error that trying again cannot mend. `call` must be safe to
 * repeat: an attempt without an answer may have taken effect, or may still.
 *
 * @throws the signal's reason; Unreachable when the time is over, be it the caller's own
 *   `Timeout` that was spent waiting here; PermissionDenied; any other error as etcd3 gives it
 */
export async function rpc<T>(
  call: (options: CallOptions) => Promise<T>,
  { signal, timeout = Number.POSITIVE_INFINITY, attempt = 1000 }: Limits = {},
): Promise<T> {
  const start = performance.now();
  const end = start + checkTimeout(timeout);
  let patience = Math.min(attempt, LONGEST_ATTEMPT);
  let last: unknown;
  try {
    for (let failures = 0; ; failures++) {
      signal?.throwIfAborted();
      const ms = Math.min(patience, end - performance.now());
      if (ms <= 0) break;
      try {
        const answer = await within(ms, signal, call({ deadline: Date.now() + ms }));
        if (answer !== OVER) return answer;
        throw new GRPCDeadlineExceededError(`no answer within ${Math.round(ms)} ms`);
      } catch (error) {
        signal?.throwIfAborted();
        if (!isTransient(error)) throw isDenial(error) ? denied(error) : error;
        if (error instanceof GRPCDeadlineExceededError) {
          // Either of the two clocks may be the first to ring. An earlier error says more than this.
          last ??= error;
          patience = Math.min(patience * 2, LONGEST_ATTEMPT);
        } else {
          last = error;
        }
      }
      const pause = Math.min(FIRST_PAUSE * 2 ** failures, LONGEST_PAUSE);
      if (performance.now() + pause >= end) break;
      await delay(pause, signal);
    }
  } catch (error) {
    // The caller's time is over, and for most of it etcd was silent: that is why.
    const least =
      error instanceof Timeout ? Math.max(error.timeout / 2, SILENCE) : Number.POSITIVE_INFINITY;
    const silent = performance.now() - start >= least;
    if (!silent) throw error;
    last ??= error;
  }
  const why = last instanceof Error ? last.message : 'no time left';
  const waited = Math.round(performance.now() - start);
  throw new Unreachable(`etcd did not answer within ${waited} ms: ${why}`, { cause: last });
}

/** Whether another attempt, perhaps at another member, may succeed. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // etcd out of space stays so until somebody makes room, by hand.
  if (/database space exceeded/.test(error.message)) return false;
  return isRecoverableError(error) || 'isBrokenCircuitError' in error;
}

/** Whether the request certainly never left: no connection was there to send it on. */
export function neverSent(error: unknown): boolean {
  return error instanceof GRPCUnavailableError && /No connection established/.test(error.message);
}

function isDenial(error: unknown): error is Error {
  return (
    error instanceof EtcdPermissionDeniedError ||
    error instanceof EtcdAuthenticationFailedError ||
    (error instanceof Error && /etcdserver: user name is empty/.test(error.message))
  );
}

/** With Go's text, without what gRPC puts before it. */
function denied(error: Error): PermissionDenied {
  const text = error.message.replace(/^.*?(?=etcdserver: )/, '');
  return new PermissionDenied(text, { cause: error });
}

const LONGEST_ATTEMPT = 5000;
/** Milliseconds without an answer that are no accident. */
const SILENCE = 250;
const FIRST_PAUSE = 10;
const LONGEST_PAUSE = 320;
