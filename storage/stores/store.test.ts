import { describe, expect, it } from 'vitest';
import { MemoryStore } from './memory.js';
import type { Entry, Store } from './store.js';

/** Every store there is, each as a factory of an empty one. */
const stores: Record<string, () => Store> = {
  memory: () => new MemoryStore(),
};

const put = (entry: Entry) => () => ({ entry });

describe.each(Object.entries(stores))('the %s store', (_name, create) => {
  it('knows no key at first', async () => {
    const store = create();
    expect(await store.read('key0')).toBeUndefined();
    await store.update('key0', (current) => {
      expect(current).toBeUndefined();
      return { refusal: 'only looking' };
    });
  });

  it('keeps what an update decides, and shows it to the next', async () => {
    const store = create();
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

  it('changes nothing when the update is refused', async () => {
    const store = create();
    const entry = { val: 'a', version: 1n };
    await store.update('key0', put(entry));
    expect(await store.update('key0', () => ({ refusal: 'stale' }))).toEqual({ refusal: 'stale' });
    expect(await store.read('key0')).toEqual(entry);
    await store.update('key1', () => ({ refusal: 'stale' }));
    expect(await store.read('key1')).toBeUndefined();
  });

  it('changes nothing when the decision throws', async () => {
    const store = create();
    const entry = { val: 'a', version: 1n };
    await store.update('key0', put(entry));
    const failed = store.update('key0', () => {
      throw new Error('no decision');
    });
    await expect(failed).rejects.toThrow('no decision');
    expect(await store.read('key0')).toEqual(entry);
  });

  it('lets no two updates of a key see the same entry', async () => {
    const store = create();
    const increment = (current: Entry | undefined) => ({
      entry: { val: '', version: (current?.version ?? 0n) + 1n },
    });
    await Promise.all(Array.from({ length: 100 }, () => store.update('counter', increment)));
    expect(await store.read('counter')).toEqual({ val: '', version: 100n });
  });

  it('takes any text as a key and as a value', async () => {
    const store = create();
    const texts = [
      '',
      '__proto__',
      'constructor',
      'toString',
      '\u0000',
      '/a/../b',
      'é\u{1f600}',
      ' ',
    ];
    for (const [i, key] of texts.entries()) {
      expect(await store.read(key)).toBeUndefined();
      await store.update(key, put({ val: `${key}!`, version: BigInt(i) }));
    }
    for (const [i, key] of texts.entries()) {
      expect(await store.read(key)).toEqual({ val: `${key}!`, version: BigInt(i) });
    }
  });

  it('keeps the whole range of versions', async () => {
    const store = create();
    for (const version of [0n, -1n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)]) {
      await store.update('key0', put({ val: '', version }));
      expect(await store.read('key0')).toEqual({ val: '', version });
    }
  });
});

describe('the memory store', () => {
  const big = { val: 'x'.repeat(1000), version: 1n };
  const small = { val: '', version: 1n };

  it('refuses what would not fit, and goes on with what does', async () => {
    const store = new MemoryStore(5000);
    expect(await store.update('a', put(big))).toEqual({ entry: big });
    expect(await store.update('b', put(big))).toEqual({ entry: big });
    expect(await store.update('c', put(big))).toEqual({ refusal: 'storage is full (5000 bytes)' });
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
    for (let i = 0; i < 100; i++) await store.update(`${i}`, put(small));
    expect(await store.read('0')).toEqual(small);
    expect(await store.read('99')).toBeUndefined();
  });
});
