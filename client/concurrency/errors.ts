// Every way a lock can be refused, lost or out of reach, one class each. "Held by another", "lost"
// and "etcd cannot be reached" call for different actions and are never the same error.
// The texts are those of etcd's client/v3/concurrency where it has one.

/** The base of all errors of this package. `code` is stable; `message` is for people. */
export abstract class ConcurrencyError extends Error {
  abstract readonly code: string;
  override get name(): string {
    return this.constructor.name;
  }
}

/** The lock is held by another session. Try later, or wait with `lock()`. */
export class Locked extends ConcurrencyError {
  readonly code = 'LOCKED';
  constructor(options?: ErrorOptions) {
    super('mutex: Locked by another session', options);
  }
}

/** `unlock()` without a lock: it never was taken, or it has been released already. */
export class LockReleased extends ConcurrencyError {
  readonly code = 'LOCK_RELEASED';
  constructor(options?: ErrorOptions) {
    super('mutex: lock has already been released', options);
  }
}

/**
 * Why a session ended.
 * - `revoked`: etcd says that the lease does not exist (revoked, or run out on etcd's clock).
 * - `expired`: no renewal was confirmed before the deadline on our own monotonic clock.
 * - `orphaned`, `closed`: the caller ended it.
 */
export type SessionEnd = 'revoked' | 'expired' | 'orphaned' | 'closed';

/** The session's lease is gone or can no longer be trusted, and every lock of it with it. */
export class SessionExpired extends ConcurrencyError {
  readonly code = 'SESSION_EXPIRED';
  constructor(
    readonly reason: SessionEnd,
    options?: ErrorOptions,
  ) {
    super('mutex: session is expired', options);
  }
}

/** The time given by the caller's `timeout` is over. */
export class Timeout extends ConcurrencyError {
  readonly code = 'TIMEOUT';
  constructor(
    /** The limit that was exceeded, in milliseconds. */
    readonly timeout: number,
    options?: ErrorOptions,
  ) {
    super(`context deadline exceeded (${timeout} ms)`, options);
  }
}

/** etcd gave no usable answer in time. `cause` is what the last attempt met. */
export class Unreachable extends ConcurrencyError {
  readonly code = 'UNREACHABLE';
}

/** etcd answered that this user may not do that. Ask for a role that covers the lock's keys. */
export class PermissionDenied extends ConcurrencyError {
  readonly code = 'PERMISSION_DENIED';
}

/** What only the leader may do was asked of an election that is not, or no longer, ours. */
export class NotLeader extends ConcurrencyError {
  readonly code = 'NOT_LEADER';
  constructor(options?: ErrorOptions) {
    super('election: not leader', options);
  }
}

/** Nobody leads at the moment. */
export class NoLeader extends ConcurrencyError {
  readonly code = 'NO_LEADER';
  constructor(options?: ErrorOptions) {
    super('election: no leader', options);
  }
}

/** A lease lock is held by somebody else. */
export class LockConflict extends ConcurrencyError {
  readonly code = 'LOCK_CONFLICT';
  constructor(
    /** The lock's key as given. */
    readonly key: string,
    options?: ErrorOptions,
  ) {
    super(`lease lock ${key}: held by another owner`, options);
  }
}

/** This very lease lock object holds it already. */
export class AlreadyHeld extends ConcurrencyError {
  readonly code = 'ALREADY_HELD';
  constructor(
    /** The lock's key as given. */
    readonly key: string,
    options?: ErrorOptions,
  ) {
    super(`lease lock ${key}: already held by this object, release it first`, options);
  }
}

/** This lease lock object does not hold it. */
export class NotLocked extends ConcurrencyError {
  readonly code = 'NOT_LOCKED';
  constructor(
    /** The lock's key as given. */
    readonly key: string,
    options?: ErrorOptions,
  ) {
    super(`lease lock ${key}: not locked`, options);
  }
}

/** A lease lock was lost before it was released: somebody else may have held it meanwhile. */
export class LockLost extends ConcurrencyError {
  readonly code = 'LOCK_LOST';
  constructor(
    /** The lock's key as given. */
    readonly key: string,
    options?: ErrorOptions,
  ) {
    super(`lease lock ${key}: lost before it was released`, options);
  }
}
