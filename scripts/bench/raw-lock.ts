// The floor beneath a hand-over: no more than the calls that a fair one takes, raw with etcd3. The holder
// deletes its key; the one who waits hears of it by its watch, and looks whether anybody is left before
// it. It survives nothing that goes wrong.

import { once } from 'node:events';
import type { Watcher } from 'etcd3';
import type { Session } from '../../client/concurrency/index.js';
import { rangeOf } from '../../client/concurrency/queue.js';
import { until } from '../../client/concurrency/timing.js';

export class RawLock {
  token = 0n;
  readonly #session: Session;
  readonly #prefix: string;
  readonly #key: Buffer;
  readonly #watchers: Watcher[] = [];

  constructor(session: Session, name: string) {
    this.#session = session;
    this.#prefix = `${name}/`;
    this.#key = Buffer.from(`${this.#prefix}${session.leaseId.toString(16)}`);
  }

  async lock({ signal = new AbortController().signal } = {}): Promise<void> {
    signal.throwIfAborted();
    const { etcd, leaseId } = this.#session;
    const put = { key: this.#key, value: Buffer.from(''), lease: String(leaseId) };
    const { header } = await etcd.kv.put(put);
    this.token = BigInt(header.revision);
    let ahead = await this.#look();
    while (ahead !== undefined) {
      const watcher = await etcd.watch().key(ahead).create();
      this.#watchers.push(watcher);
      const deleted = once(watcher, 'delete');
      // Nobody waits for it if the next look differs.
      deleted.catch(() => {});
      // Otherwise the wait could be for what was deleted before.
      if ((await this.#look())?.equals(ahead)) {
        await until(signal, deleted).catch(async (error) => {
          // With a watch left, etcd3 keeps the process alive.
          await this.#unwatch();
          throw error;
        });
      }
      ahead = await this.#look();
    }
  }

  async unlock(): Promise<boolean> {
    const create_revision = String(this.token);
    const { succeeded } = await this.#session.etcd.kv.txn({
      compare: [{ key: this.#key, target: 'Create', result: 'Equal', create_revision }],
      success: [{ request_delete_range: { key: this.#key } }],
    });
    await this.#unwatch();
    return succeeded;
  }

  async #unwatch(): Promise<void> {
    await Promise.all(this.#watchers.splice(0).map((watcher) => watcher.cancel()));
  }

  /** The key that is the nearest before the own one. */
  async #look(): Promise<Buffer | undefined> {
    const before = { max_create_revision: String(this.token - 1n), limit: 1 } as const;
    const nearest = { sort_target: 'Create', sort_order: 'Descend', ...before } as const;
    const { responses } = await this.#session.etcd.kv.txn({
      success: [
        { request_range: { key: this.#key } },
        { request_range: { ...rangeOf(this.#prefix), ...nearest } },
      ],
    });
    const [own, ahead] = responses.map(({ response_range }) => response_range.kvs[0]);
    if (BigInt(own?.create_revision ?? 0) !== this.token) throw new Error('lost the place');
    return ahead?.key;
  }
}
