// The storage of the lab: the app of storage itself, with one rule more, `none`, that nobody is to
// use, and a line of JSON on standard output for each decision, on the clock of the lab.

import { connect } from '../../client/concurrency/index.js';
import { createApp } from '../../storage/app.js';
import { type Rule, rules } from '../../storage/fence.js';
import { EtcdLock } from '../../storage/lock.js';
import { HttpServer } from '../../storage/server.js';
import { EtcdStore } from '../../storage/stores/etcd.js';
import { LmdbStore } from '../../storage/stores/lmdb.js';
import { MemoryStore } from '../../storage/stores/memory.js';
import { encodeEvent, now } from './history.js';

export type StorageOptions = {
  fence: Fence;
  store: StoreKind;
  endpoints: readonly string[];
  lock: string;
  /** Of the lmdb store. */
  data: string;
  port: number;
};

/** Milliseconds for those that wait for an answer when it is told to end. */
const PATIENCE = 5000;

const none: Rule = { name: 'none', fencesReads: false, check: () => undefined };
export const fences = { none, ...rules } satisfies Record<string, Rule>;
export type Fence = keyof typeof fences;

export const storeKinds = ['memory', 'lmdb', 'etcd'] as const;
export type StoreKind = (typeof storeKinds)[number];

if (process.argv[1] === import.meta.filename) await serve(JSON.parse(process.argv[2] ?? ''));

async function serve({ fence, store, endpoints, lock, data, port }: StorageOptions): Promise<void> {
  const etcd = await connect({ endpoints });
  const stores = {
    memory: () => new MemoryStore(),
    lmdb: () => LmdbStore.open(data),
    etcd: () => new EtcdStore(etcd, '/lab-storage/'),
  };
  const kept = await stores[store]();
  const app = createApp({
    store: kept,
    rule: fences[fence],
    lock: fence === 'holder' ? new EtcdLock(etcd, lock) : undefined,
    observe: ({ op, key, val, token, result, reason }) => {
      // What failed is no decision: nobody knows whether it happened, and the worker asks again.
      if (op === '' || result === 'failed') return;
      const request = { op, key, val, token };
      // A key that is not there is an answer like any other.
      const accepted = result === 'accepted' || result === 'not found';
      print(encodeEvent({ at: now(), what: 'decided', request, accepted, reason }));
    },
    signal: new AbortController().signal,
  });
  const server = await HttpServer.listen(app, { host: '127.0.0.1', port });
  print(`listening on http://127.0.0.1:${server.address.port}`);
  process.once('SIGTERM', async () => {
    await server.close(PATIENCE);
    await kept.close();
    process.exit(0);
  });
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}
