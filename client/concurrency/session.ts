// A session: a lease kept alive for as long as its owner runs, after etcd's
// client/v3/concurrency/session.go. Different on purpose: the deadline is counted from the moment a
// renewal was sent and by the TTL that the server granted, on the monotonic clock, so that a process
// that was paused, blocked or cut off finds out before anybody else can hold its locks.
//
// It still is advice: between looking at `expired` and using the result the process may be paused
// again. Only a check of the token at the resource protects (see the README).

import {
  castGrpcError,
  type Etcd3,
  EtcdLeaseInvalidError,
  GRPCDeadlineExceededError,
  GRPCUnavailableError,
} from 'etcd3';
import { type SessionEnd, SessionExpired, Unreachable } from './errors.js';
import { type CallOptions, rpc } from './rpc.js';
import { delay, OVER, until, within } from './timing.js';

export interface SessionOptions {
  /**
   * Seconds to ask for, a whole number. Default 60, also when <= 0. etcd grants at least one and a
   * half election timeouts: with its default settings asking for 1 grants 2.
   */
  ttl?: number;
  /** An existing lease to adopt instead of asking for a new one. Default: none. */
  leaseId?: bigint;
  /** Milliseconds until the lease must be granted. Default 5000. */
  timeout?: number;
  /** Ends the creation, not the session, with the signal's reason. */
  signal?: AbortSignal;
}

/** A lease, kept alive at a third of its granted TTL until it is closed, orphaned or lost. */
export class Session implements AsyncDisposable {
  readonly #ended = new AbortController();
  readonly #keepAlive: Promise<void>;
  #ttl: number;
  #deadline: number;
  #closing: Promise<void> | undefined;

  private constructor(
    /** The client this session talks through. Stays the caller's to close. */
    readonly etcd: Etcd3,
    first: Renewal,
  ) {
    this.leaseId = first.leaseId;
    this.#ttl = first.ttl;
    this.#deadline = first.deadline;
    this.#keepAlive = Promise.all([this.#renew(first.sent), this.#watchDeadline()]).then(() => {});
  }

  /**
   * Grants (or adopts) a lease and keeps it alive.
   *
   * @param etcd best one of `connect`: etcd3's own settings leave a member that failed out for
   *   five seconds, even the only one, and try again out of our sight
   * @throws RangeError for a TTL that is no whole number or too large, or an ID that is no int64
   * @throws Unreachable when etcd does not answer within `timeout`
   * @throws SessionExpired when the lease to adopt does not exist
   */
  static async create(etcd: Etcd3, options: SessionOptions = {}): Promise<Session> {
    const { timeout = 5000, signal } = options;
    const ttl = checkTtl(options.ttl);
    const leaseId = checkLeaseId(options.leaseId);
    // Nothing starts inside the call: an answer that comes after it was given up starts no session.
    const first = await rpc(
      (call) =>
        leaseId ? renew(etcd, leaseId, call.deadline - Date.now(), signal) : grant(etcd, ttl, call),
      { timeout, signal },
    );
    if (first.ttl <= 0) throw new SessionExpired('revoked');
    return new Session(etcd, first);
  }

  /** The ID of the lease: an int64, positive when etcd chose it. */
  readonly leaseId: bigint;

  /** Seconds, as the server granted them last. */
  get ttl(): number {
    return this.#ttl;
  }

  /**
   * When the lease may be gone, in milliseconds of `performance.now()`: the time the last confirmed
   * renewal was sent plus the TTL it granted.
   */
  get deadline(): number {
    return this.#deadline;
  }

  /**
   * Whether the lease is lost, or may be by the clock. Compares with the clock when it is read, and
   * so tells the truth in code that has just been paused, before any timer or event has run.
   */
  get expired(): boolean {
    return this.#ended.signal.aborted || performance.now() >= this.#deadline;
  }

  /**
   * Aborts once, with a {@link SessionExpired} that says why, at the latest at the deadline.
   * It may come late, as any event may: only the check at the resource protects.
   */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** Stops the renewals and leaves the lease to run out, or to somebody else to renew. */
  async orphan(): Promise<void> {
    this.#end('orphaned');
    await this.#keepAlive;
  }

  /**
   * Ends the session and revokes its lease, so that its locks are free at once. Takes no longer
   * than the deadline: by then the lease has run out anyway. Fine to call again, and after a loss.
   *
   * @throws what etcd answers to the revocation, unless the lease is gone already
   */
  close(): Promise<void> {
    this.#closing ??= this.#close().catch((error) => {
      this.#closing = undefined;
      throw error;
    });
    return this.#closing;
  }

  /** Closes the session, unless it was orphaned: then the lease is left as it is. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended.signal.reason?.reason !== 'orphaned') await this.close();
  }

  /** Milliseconds between two renewals: a third of the TTL. */
  get #interval(): number {
    return (this.#ttl * 1000) / 3;
  }

  async #close(): Promise<void> {
    this.#end('closed');
    await this.#keepAlive;
    const timeout = this.#deadline - performance.now();
    if (timeout <= 0) return;
    const attempt = Math.min(this.#interval, FIRST_ATTEMPT);
    try {
      await rpc((call) => this.etcd.leaseClient.leaseRevoke({ ID: String(this.leaseId) }, call), {
        timeout,
        attempt,
      });
    } catch (error) {
      if (!(error instanceof EtcdLeaseInvalidError || error instanceof Unreachable)) throw error;
    }
  }

  #end(reason: SessionEnd): void {
    if (this.#ended.signal.aborted) return;
    const late = performance.now() >= this.#deadline;
    this.#ended.abort(new SessionExpired(late ? 'expired' : reason));
  }

  async #renew(sent: number): Promise<void> {
    const { signal } = this.#ended;
    let next = sent + this.#interval;
    // A mute member costs a second, or what a short lease can spare, and after that more.
    const first = Math.min(this.#interval, FIRST_ATTEMPT);
    let patience = first;
    while (!signal.aborted) {
      await delay(next - performance.now(), signal).catch(() => {});
      if (signal.aborted) return;
      const start = performance.now();
      try {
        const answer = await renew(this.etcd, this.leaseId, patience, signal);
        // A confirmation that comes after the deadline comes too late: the loss may have been seen.
        if (this.expired) return this.#end('expired');
        if (answer.ttl <= 0) return this.#end('revoked');
        this.#ttl = answer.ttl;
        this.#deadline = Math.max(this.#deadline, answer.deadline);
        next = answer.sent + this.#interval;
        patience = first;
      } catch {
        // Whatever it was, the deadline stands, and there may be time for another attempt.
        next = start + Math.min(this.#interval, RETRY);
        patience = Math.min(patience * 2, this.#interval);
      }
    }
  }

  async #watchDeadline(): Promise<void> {
    const { signal } = this.#ended;
    while (!this.expired) {
      await delay(this.#deadline - performance.now(), signal).catch(() => {});
    }
    this.#end('expired');
  }
}

/** Milliseconds for the first attempt at a renewal. */
const FIRST_ATTEMPT = 1000;
/** Milliseconds from a failed renewal to the next attempt. */
const RETRY = 100;
/** Milliseconds that an attempt may take longer than its deadline until it is left alone. */
const GRACE = 50;

/** What an answer of etcd proves: the lease lives until `deadline`, unless it is revoked. */
interface Renewal {
  leaseId: bigint;
  /** When the request was sent, `performance.now()`. */
  sent: number;
  /** Seconds; 0 when the lease does not exist. */
  ttl: number;
  deadline: number;
}

function renewal(leaseId: bigint, sent: number, ttl: string): Renewal {
  return { leaseId, sent, ttl: Number(ttl), deadline: sent + Number(ttl) * 1000 };
}

async function grant(etcd: Etcd3, ttl: number, call: CallOptions): Promise<Renewal> {
  const sent = performance.now();
  const granted = await etcd.leaseClient.leaseGrant({ TTL: ttl }, call);
  return renewal(BigInt(granted.ID), sent, granted.TTL);
}

/** Renews a lease once. Rejects when there is no answer within `ms`. */
async function renew(
  etcd: Etcd3,
  leaseId: bigint,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<Renewal> {
  // The stream ends itself in time; this is for a client whose policies are slow to open one.
  const answer = await within(ms + GRACE, signal, askToRenew(etcd, leaseId, ms, signal));
  if (answer === OVER) throw new GRPCDeadlineExceededError(`no stream within ${Math.round(ms)} ms`);
  return answer;
}

/**
 * On a stream of its own: a frozen member then costs this attempt only, and no answer can be taken
 * for another's. The deadline is left to gRPC, so that etcd3 hears of a member that let it pass.
 */
async function askToRenew(
  etcd: Etcd3,
  leaseId: bigint,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<Renewal> {
  const stream = await etcd.leaseClient.leaseKeepAlive({ deadline: Date.now() + ms });
  try {
    const sent = performance.now();
    const answer = new Promise<string>((resolve, reject) => {
      stream.on('data', ({ TTL }) => resolve(TTL));
      // As etcd3 does it for unary calls, so that it can be told which errors trying again may mend.
      stream.on('error', (error) => reject(castGrpcError(error)));
      stream.on('end', () => reject(new GRPCUnavailableError('the keep-alive stream ended')));
      stream.write({ ID: String(leaseId) });
    });
    const ttl = await (signal ? until(signal, answer) : answer);
    return renewal(leaseId, sent, ttl);
  } finally {
    // In this order, or etcd3 takes the cancellation for a fault of the member.
    stream.end();
    stream.cancel();
  }
}

function checkTtl(ttl = DEFAULT_TTL): number {
  if (!Number.isSafeInteger(ttl)) {
    throw new RangeError(`expected ttl to be a whole number of seconds, got ${String(ttl)}`);
  }
  if (ttl > LARGEST_TTL) {
    throw new RangeError(`expected ttl to be ${LARGEST_TTL} seconds at most, got ${ttl}`);
  }
  return ttl > 0 ? ttl : DEFAULT_TTL;
}

/** Undefined for none, which is 0 in Go. */
function checkLeaseId(id: bigint | undefined): bigint | undefined {
  if (id !== undefined && BigInt.asIntN(64, id) !== id) {
    throw new RangeError(`expected leaseId to be a signed 64-bit integer, got ${id}`);
  }
  return id || undefined;
}

/** Seconds, Go's defaultSessionTTL. */
const DEFAULT_TTL = 60;
/** Seconds, etcd's MaxLeaseTTL. */
const LARGEST_TTL = 9_000_000_000;
