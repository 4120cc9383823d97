// How the cost of a request grows: with the connections, and with the keys that are kept. Keys by the
// store itself, without HTTP, which would hide them: it takes more time than any of them.

import { join } from 'node:path';
import { LmdbStore } from '../../storage/stores/lmdb.js';
import { MemoryStore } from '../../storage/stores/memory.js';
import type { Store } from '../../storage/stores/store.js';
import type { Case } from './case.js';
import { temporaryFolder } from './folder.js';
import { inTurn, median, ratio } from './measure.js';
import { inTurns } from './storage-load.js';
import { requestsOf, startOurs } from './storage-servers.js';

/** Updates in one round. */
const UPDATES = 10_000;

export const growth: Case = {
  about: 'storage: how the cost grows with the connections and the keys',
  async *run(bench) {
    const { scale, signal } = bench;
    await using ours = await startOurs(7n, [], bench);
    const loadOf = (connections: number) => ({
      port: ours.port,
      requests: requestsOf('accepted write', 7n, connections),
    });
    for (const connections of [2, 4, 8, 16, 32, 64]) {
      const loads = await inTurns({ many: loadOf(connections), one: loadOf(1) }, 5, bench);
      const many = loads.many.map(({ perSecond }) => perSecond);
      const one = loads.one.map(({ perSecond }) => perSecond);
      const against = { what: '1 connection', value: median(one), ratio: ratio(many, one) };
      const what = `memory, equal: accepted write, ${connections} connections`;
      yield { what, value: median(many), unit: '/s', against };
    }
    for (const [name, open] of Object.entries(STORES)) {
      await using folder = await temporaryFolder();
      const store = async (keys: number) => filled(await open(join(folder.path, `${keys}`)), keys);
      const one = await store(1);
      for (const keys of [1000, 100_000, 1_000_000]) {
        const count = Math.max(2, Math.round(keys * scale));
        const many = await store(count);
        const contestants = { many: () => update(many, count), one: () => update(one, 1) };
        const rates = await inTurn(contestants, { rounds: 5, warmUp: 2, signal });
        await many.close();
        const against = {
          what: '1 key',
          value: median(rates.one),
          ratio: ratio(rates.many, rates.one),
        };
        const what = `${name} store by itself: update, ${count} keys`;
        yield { what, value: median(rates.many), unit: '/s', against };
      }
      await one.close();
    }
  },
};

/** By name, given a folder of their own. */
const STORES: Record<string, (folder: string) => Promise<Store>> = {
  memory: async () => new MemoryStore(),
  lmdb: (folder) => LmdbStore.open(folder),
};

/** Updates under way at a time, of which lmdb flushes many together. */
const AT_ONCE = 1000;

/** Checked to have kept what was written first and last. */
async function filled(store: Store, keys: number): Promise<Store> {
  await inGroups(keys, (i) => write(store, i));
  for (const i of [0, keys - 1]) {
    const { val } = (await store.read(`key ${i}`)) ?? {};
    if (val !== `value ${i}`) throw new Error(`expected value ${i}, got ${val}`);
  }
  return store;
}

/** Updates a second, spread over all keys. */
async function update(store: Store, keys: number): Promise<number> {
  const start = performance.now();
  // A prime, so that they are not those next to each other in memory.
  await inGroups(UPDATES, (i) => write(store, (i * 7919) % keys));
  return (UPDATES * 1000) / (performance.now() - start);
}

async function inGroups(count: number, work: (i: number) => Promise<void>): Promise<void> {
  for (let start = 0; start < count; start += AT_ONCE) {
    const size = Math.min(AT_ONCE, count - start);
    await Promise.all(Array.from({ length: size }, (_, i) => work(start + i)));
  }
}

async function write(store: Store, i: number): Promise<void> {
  await store.update(`key ${i}`, () => ({ entry: { val: `value ${i}`, version: 7n } }));
}
