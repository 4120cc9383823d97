// What a lock is on the wire, and nothing else, raw with etcd3: two transactions where nobody else wants
// it. One who waits hears by its watch that the key before its own is deleted, and looks whether anybody
// is left before it. No trying again, nothing looked after: the floor beneath a lock and a hand-over.

import { once } from 'node:events';
import type { IRangeRequest, Watcher } from 'etcd3';
import type { Session } from '../../client/concurrency/index.js';
import { rangeOf } from '../../client/concurrency/queue.js';
import { until } from '../../client/concurrency/timing.js';

export class RawLock {
  token = 0n;
  readonly #session: Session;
  readonly #queue: IRangeRequest;
  readonly #key: Buffer;
  readonly #watchers: Watcher[] = [];

  constructor(session: Session, name: string) {
    this.#session = session;
    this.#queue = rangeOf(`${name}/`);
    this.#key = Buffer.from(`${name}/${session.leaseId.toString(16)}`);
  }

  async lock({ signal = new AbortController().signal } = {}): Promise<void> {
    signal.throwIfAborted();
    const { etcd } = this.#session;
    let ahead = await this.#join();
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

  /** As {@link RawLock.#look}, with the own key put there first. */
  async #join(): Promise<Buffer | undefined> {
    const key = this.#key;
    const put = { key, value: Buffer.from(''), lease: String(this.#session.leaseId) };
    const { header, responses } = await this.#session.etcd.kv.txn({
      compare: [{ key, target: 'Create', result: 'Equal', create_revision: '0' }],
      success: [{ request_put: put }, { request_range: { ...this.#queue, ...NEWEST, limit: 2 } }],
    });
    this.token = BigInt(header.revision);
    return responses[1]?.response_range.kvs[1]?.key;
  }

  /** The key that is the nearest before the own one. */
  async #look(): Promise<Buffer | undefined> {
    const before = { max_create_revision: String(this.token - 1n), limit: 1 };
    const { responses } = await this.#session.etcd.kv.txn({
      success: [
        { request_range: { key: this.#key } },
        { request_range: { ...this.#queue, ...NEWEST, ...before } },
      ],
    });
    const [own, ahead] = responses.map(({ response_range }) => response_range.kvs[0]);
    if (BigInt(own?.create_revision ?? 0) !== this.token) throw new Error('lost the place');
    return ahead?.key;
  }
}

const NEWEST = { sort_target: 'Create', sort_order: 'Descend' } as const;
