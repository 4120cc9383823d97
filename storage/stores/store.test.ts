import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import { connect } from '../../client/concurrency/connect.js';
import { EtcdStore } from './etcd.js';
import { LmdbStore } from './lmdb.js';
import { MemoryStore } from './memory.js';
import { type Decision, type Entry, NoRoom, type Store } from './store.js';

/** Every store there is, each as a factory of an empty one. The tests close it. */
const stores: Record<string, () => Store | Promise<Store>> = {
  memory: () => new MemoryStore(),
  lmdb: async () => LmdbStore.open(await temporaryFolder()),
  etcd: async () => {
    const etcd = await connect({ endpoints: inject('etcd') });
    onTestFinished(() => etcd.close());
    return new EtcdStore(etcd, `/store-test/${randomUUID()}/`);
  },
};

const put = (entry: Entry) => () => ({ entry });

describe.each(Object.entries(stores))('the %s store', (_name, factory) => {
  async function create(): Promise<Store> {
    const store = await factory();
    onTestFinished(() => store.close());
    return store;
  }

  it('knows no key at first', async () => {
    const store = await create();
    expect(await store.read('key0')).toBeUndefined();
    await store.update('key0', (current) => {
      expect(current).toBeUndefined();
      return { refusal: 'only looking' };
    });
  });

  it('keeps what an update decides, and shows it to the next', async () => {
    const store = await create();
    const first = { val: 'a', version: 4703569812595502721n };
    const second = { val: 'b', version: 4703569812595502727n };
    expect(await store.update('key0', put(first))).toEqual({ entry: first });
    expect(await store.read('key0')).toEqual(first);
    await store.update('key0', (current) => {
      expect(current).toEqual(first);
      return { entry: second };
    });
    expect(await store.read('key0')).toEqual(second);
  });

  it('keeps a token without a value apart from an empty value', async () => {
    const store = await create();
    const read = { val: undefined, version: 7n };
    const written = { val: '', version: 7n };
    expect(await store.update('key0', put(read))).toEqual({ entry: read });
    expect(await store.read('key0')).toEqual(read);
    await store.update('key0', (current) => {
      expect(current).toEqual(read);
      return { entry: written };
    });
    expect(await store.read('key0')).toEqual(written);
  });

  it('takes the very entry it showed for no change', async () => {
    const store = await create();
    const entry = { val: 'a', version: 1n };
    await store.update('key0', put(entry));
    const keep = (current: Entry | undefined): Decision =>
      current ? { entry: current } : { refusal: 'not there' };
    expect(await store.update('key0', keep)).toEqual({ entry });
    expect(await store.read('key0')).toEqual(entry);
  });

  it('changes nothing when the update is refused', async () => {
    const store = await create();
    const entry = { val: 'a', version: 1n };
    await store.update('key0', put(entry));
    expect(await store.update('key0', () => ({ refusal: 'stale' }))).toEqual({ refusal: 'stale' });
    expect(await store.read('key0')).toEqual(entry);
    await store.update('key1', () => ({ refusal: 'stale' }));
    expect(await store.read('key1')).toBeUndefined();
  });

  it('changes nothing when the decision throws, and everything else as decided', async () => {
    const store = await create();
    const [before, after] = [
      { val: 'a', version: 1n },
      { val: 'b', version: 2n },
    ];
    await store.update('key0', put(before));
    const [first, failed, second] = await Promise.allSettled([
      store.update('key1', put(after)),
      store.update('key0', () => {
        throw new Error('no decision');
      }),
      store.update('key2', put(after)),
    ]);
    expect(failed).toEqual({ status: 'rejected', reason: new Error('no decision') });
    expect([first, second]).toEqual(
      Array(2).fill({ status: 'fulfilled', value: { entry: after } }),
    );
    expect(await store.read('key0')).toEqual(before);
    expect(await store.read('key1')).toEqual(after);
    expect(await store.read('key2')).toEqual(after);
  });

  it('lets no two updates of a key see the same entry', async () => {
    const store = await create();
    const increment = (current: Entry | undefined) => ({
      entry: { val: '', version: (current?.version ?? 0n) + 1n },
    });
    await Promise.all(Array.from({ length: 100 }, () => store.update('counter', increment)));
    expect(await store.read('counter')).toEqual({ val: '', version: 100n });
  });

  it('takes any text as a key and as a value', async () => {
    const store = await create();
    const texts = [
      '',
      '__proto__',
      'constructor',
      'toString',
      '\u0000',
      '\u0000\u0000',
      '/a/../b',
      'é\u{1f600}',
      ' ',
      '\uffff',
      '\n',
    ];
    for (const [i, key] of texts.entries()) {
      expect(await store.read(key)).toBeUndefined();
      await store.update(key, put({ val: `${key}!`, version: BigInt(i) }));
    }
    for (const [i, key] of texts.entries()) {
      expect(await store.read(key)).toEqual({ val: `${key}!`, version: BigInt(i) });
    }
  });

  it('keeps a key of any length, or says that it cannot', async () => {
    const store = await create();
    const entry = { val: 'a', version: 1n };
    for (const length of [500, 1976, 1977, 1978, 1979, 5000, 100_000]) {
      const key = 'é'.repeat(length / 2) + 'k'.repeat(length % 2);
      const kept = await store.update(key, put(entry)).catch((error) => {
        expect(error).toBeInstanceOf(NoRoom);
      });
      expect(await store.read(key)).toEqual(kept && entry);
    }
    await store.update('key0', put(entry));
    expect(await store.read('key0')).toEqual(entry);
  });

  it('keeps values of a mebibyte', async () => {
    const store = await create();
    const values = ['x'.repeat(2 ** 20), 'é'.repeat(2 ** 19), 'x'.repeat(2 ** 20 - 1)];
    for (const [i, val] of values.entries()) {
      const entry = { val, version: BigInt(i) };
      await store.update('key0', put(entry));
      const kept = await store.read('key0');
      // Not toEqual: it would print them.
      expect(kept?.version).toBe(entry.version);
      expect(kept?.val === val).toBe(true);
    }
  });

  it('keeps the whole range of versions', async () => {
    const store = await create();
    for (const version of [0n, -1n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)]) {
      await store.update('key0', put({ val: '', version }));
      expect(await store.read('key0')).toEqual({ val: '', version });
    }
  });

  it('lists its entries, up to a limit', async () => {
    const store = await create();
    expect(await store.list(10)).toEqual({ entries: [], more: false });
    const all = new Map<string, Entry>([
      ['', { val: 'a', version: 1n }],
      ['key1', { val: undefined, version: 2n }],
      ['é', { val: 'c', version: 3n }],
    ]);
    for (const [key, entry] of all) await store.update(key, put(entry));
    for (const limit of [10, 3]) {
      const { entries, more } = await store.list(limit);
      expect([new Map(entries), more]).toEqual([all, false]);
    }
    const { entries, more } = await store.list(2);
    expect([entries.length, more]).toEqual([2, true]);
    for (const [key, entry] of entries) expect(entry).toEqual(all.get(key));
  });

  it('finds nothing wrong with itself', async () => {
    await (await create()).check();
  });
});

describe('the memory store', () => {
  const big = { val: 'x'.repeat(1000), version: 1n };
  const small = { val: '', version: 1n };

  it('refuses what would not fit, and goes on with what does', async () => {
    const store = new MemoryStore(5000);
    expect(await store.update('a', put(big))).toEqual({ entry: big });
    expect(await store.update('b', put(big))).toEqual({ entry: big });
    await expect(store.update('c', put(big))).rejects.toThrow(
      new NoRoom('storage is full (5000 bytes)'),
    );
    expect(await store.read('c')).toBeUndefined();
    expect(await store.update('a', put(small))).toEqual({ entry: small });
    expect(await store.update('c', put(big))).toEqual({ entry: big });
  });

  it('counts an entry once, however often it is replaced', async () => {
    const store = new MemoryStore(5000);
    for (let i = 0; i < 100; i++) expect(await store.update('a', put(big))).toEqual({ entry: big });
  });

  it('counts the keys too', async () => {
    const store = new MemoryStore(5000);
    const kept = await Promise.allSettled(
      Array.from({ length: 100 }, (_, i) => store.update(`${i}`, put(small))),
    );
    expect(await store.read('0')).toEqual(small);
    expect(await store.read('99')).toBeUndefined();
    expect(kept.at(-1)).toMatchObject({ status: 'rejected', reason: expect.any(NoRoom) });
  });
});

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'store-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
