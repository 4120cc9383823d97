// The package's entry point: a fair lock on etcd with a fencing token.

export { type ConnectOptions, connect, ENDPOINTS } from './connect.js';
export {
  ConcurrencyError,
  Locked,
  LockReleased,
  type SessionEnd,
  SessionExpired,
  Timeout,
  Unreachable,
} from './errors.js';
export { Locker, type LockOptions, Mutex } from './mutex.js';
export { Session, type SessionOptions } from './session.js';
