// The package's entry point: a fair lock on etcd with a fencing token.

export { type ConnectOptions, connect } from './connect.js';
export { Election, type Leader } from './election.js';
export { ENDPOINTS } from './endpoints.js';
export {
  AlreadyHeld,
  ConcurrencyError,
  LockConflict,
  Locked,
  LockLost,
  LockReleased,
  NoLeader,
  NotLeader,
  NotLocked,
  PermissionDenied,
  type SessionEnd,
  SessionExpired,
  Timeout,
  Unreachable,
} from './errors.js';
export { LeaseLock } from './lease-lock.js';
export { Locker, type LockOptions, Mutex } from './mutex.js';
export { Session, type SessionOptions } from './session.js';
export { type Held, withLock } from './with-lock.js';
