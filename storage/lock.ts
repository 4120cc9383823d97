/**
 * A lock of client/concurrency seen from outside: who is first in its queue. What is found may be
 * over by the time it is used; only a store that compares the holder's key in the same step as it
 * writes leaves no gap.
 */
import type { Etcd3 } from 'etcd3';
import { oldest } from '../client/concurrency/queue.js';
import type { Lock } from './service.js';
import { type Holder, Unavailable } from './stores/store.js';

export class EtcdLock implements Lock {
  readonly gone: string;
  readonly #etcd: Etcd3;
  readonly #name: string;

  /** `etcd` stays the caller's. `name`: of the lock, as given to `Mutex`. */
  constructor(etcd: Etcd3, name: string) {
    this.#etcd = etcd;
    this.#name = name;
    this.gone = `lock '${name}' not found or expired`;
  }

  async holder(): Promise<Holder | undefined> {
    try {
      // A first attempt that is short leaves time for the other members.
      const limits = { timeout: 2000, attempt: 500 };
      const first = await oldest(this.#etcd, `${this.#name}/`, limits);
      return first && { key: Buffer.from(first.key), token: first.revision, gone: this.gone };
    } catch (error) {
      const why = (error as Error).message;
      throw new Unavailable(`etcd did not say who holds lock '${this.#name}': ${why}`, {
        cause: error,
      });
    }
  }
}
