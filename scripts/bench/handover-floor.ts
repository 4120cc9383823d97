// What a hand-over is on the wire, and nothing else: the holder deletes its key, the one who waits hears
// of it by its watch, and looks whether anybody is left before it. Sent raw with etcd3, in one process.

import { once } from 'node:events';
import type { Etcd3 } from 'etcd3';
import { rangeOf } from '../../client/concurrency/queue.js';

const PREFIX = 'raw hand-over/';
const holder = Buffer.from(`${PREFIX}holder`);
const waiter = Buffer.from(`${PREFIX}waiter`);

/** Milliseconds from the call that deletes to the answer to the look. */
export async function rawHandOver(etcd: Etcd3): Promise<number> {
  const create_revision = await join(etcd, holder);
  const own = await join(etcd, waiter);
  const watcher = await etcd.watch().key(holder).create();
  try {
    const deleted = once(watcher, 'delete');
    const start = performance.now();
    const leaving = etcd.kv.txn({
      compare: [{ key: holder, target: 'Create', result: 'Equal', create_revision }],
      success: [{ request_delete_range: { key: holder } }],
    });
    await deleted;
    const before = { max_create_revision: String(BigInt(own) - 1n), limit: 1 } as const;
    const nearest = { sort_target: 'Create', sort_order: 'Descend', ...before } as const;
    const { responses } = await etcd.kv.txn({
      success: [
        { request_range: { key: waiter } },
        { request_range: { ...rangeOf(PREFIX), ...nearest } },
      ],
    });
    const time = performance.now() - start;
    await leaving;
    const [found, ahead] = responses.map(({ response_range }) => response_range.kvs);
    if (found?.[0]?.create_revision !== own || ahead?.length !== 0) {
      throw new Error('expected the one who waits to be the first');
    }
    return time;
  } finally {
    await watcher.cancel();
    await etcd.delete().prefix(PREFIX);
  }
}

/** Its create revision. */
async function join(etcd: Etcd3, key: Buffer): Promise<string> {
  return (await etcd.kv.put({ key, value: Buffer.from('') })).header.revision;
}
