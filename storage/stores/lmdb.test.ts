import { chmod, cp, mkdir, mkdtemp, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { open } from 'lmdb';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Program } from '../../scripts/lib/program.js';
import { generator } from '../../scripts/lib/random.js';
import { FolderInUse, LmdbStore } from './lmdb.js';
import { type Entry, Unavailable } from './store.js';

const entry: Entry = { val: 'a', version: 1n };
const put = (entry: Entry) => () => ({ entry });

describe('the lmdb store', () => {
  it('keeps its entries, and opens again at once after it was closed', async () => {
    const folder = join(await temporaryFolder(), 'new', 'v1.0');
    for (let version = 1n; version <= 5n; version++) {
      const store = await LmdbStore.open(folder);
      const seen = await store.update('key0', (current) => {
        expect(current?.version).toBe(version === 1n ? undefined : version - 1n);
        return { entry: { val: 'a', version } };
      });
      expect(seen).toEqual({ entry: { val: 'a', version } });
      await store.close();
    }
    expect((await stat(folder)).mode & 0o777).toBe(0o700);
  });

  it('lets the updates that wait share a commit', async () => {
    const folder = await temporaryFolder();
    const store = await LmdbStore.open(folder);
    await load(store, { writers: 32, updates: 320, val: 'a' });
    await store.close();
    expect(await commits(folder)).toBeLessThan(80);
  });

  it('commits nothing for an update that changes nothing', async () => {
    const folder = await temporaryFolder();
    const store = await LmdbStore.open(folder);
    await store.update('key0', put(entry));
    for (let i = 0; i < 10; i++) {
      await store.update('key0', () => ({ refusal: 'stale' }));
      await store.update('key0', (current) => ({ entry: current ?? entry }));
    }
    await store.close();
    expect(await commits(folder)).toBe(1);
  });

  it('grows neither in memory nor on disk when it replaces entries', async () => {
    const folder = await temporaryFolder();
    const child = start(
      `
      const store = await LmdbStore.open(process.argv[1]);
      const load = ${load};
      const used = () => {
        gc();
        const { heapUsed, external } = process.memoryUsage();
        return heapUsed + external;
      };
      const one = { writers: 32, updates: 6400, val: 'x'.repeat(2000) };
      await load(store, one);
      const before = used();
      await load(store, one);
      console.log('grown by', used() - before);
      await store.close();
      `,
      [folder],
      ['--expose-gc'],
    );
    const grown = Number((await child.line(/^grown by/)).split(' ').at(-1));
    expect(grown).toBeLessThan(2 ** 21);
    expect((await stat(join(folder, 'data.mdb'))).size).toBeLessThan(2 ** 22);
  });

  it('rejects what it cannot do with damaged data, and lives', async () => {
    const folder = await temporaryFolder();
    const store = await LmdbStore.open(folder);
    await load(store, { writers: 1, updates: 100, val: 'x'.repeat(500) });
    await store.close();
    const file = join(folder, 'data.mdb');
    const { size } = await stat(file);
    // The first two pages say where the others are.
    const pages = 2 * 4096;
    await truncate(file, pages);
    await truncate(file, size);
    const damaged = await LmdbStore.open(folder);
    for (let i = 0; i < 3; i++) {
      await expect(damaged.read('key0')).rejects.toThrow(/cannot read the data .*MDB_CORRUPTED/);
      const updates = ['key0', 'key1'].map((key) => damaged.update(key, put(entry)));
      for (const update of updates) await expect(update).rejects.toThrow(/MDB_CORRUPTED/);
    }
    await damaged.close();
  });

  it('when it is closed finishes what waits for it, and does nothing more', async () => {
    const folder = await temporaryFolder();
    const store = await LmdbStore.open(folder);
    const updates = Array.from({ length: 50 }, (_, i) => store.update(`${i}`, put(entry)));
    const settled = Promise.allSettled(updates);
    await store.close();
    const done = (await settled).map(({ status }) => status === 'fulfilled');
    await expect(store.update('late', put(entry))).rejects.toThrow(Unavailable);
    const again = await LmdbStore.open(folder);
    for (const [i, was] of done.entries()) {
      expect([i, (await again.read(`${i}`)) !== undefined]).toEqual([i, was]);
    }
    expect(await again.read('late')).toBeUndefined();
    await again.close();
  });

  it('writes nothing more once the lock file that keeps others away is gone', async () => {
    const folder = await temporaryFolder();
    const store = await LmdbStore.open(folder);
    await rm(join(folder, 'lock.mdb'));
    await expect(store.update('key0', put(entry))).rejects.toThrow(Unavailable);
    await expect(store.check()).rejects.toThrow(/removed or replaced/);
    await store.close();
  });

  it('keeps its files for their owner only, also in a folder of others', async () => {
    const folder = await temporaryFolder();
    await chmod(folder, 0o755);
    const store = await LmdbStore.open(folder);
    await store.update('key0', put(entry));
    for (const name of ['data.mdb', 'lock.mdb']) {
      expect((await stat(join(folder, name))).mode & 0o777).toBe(0o600);
    }
    await store.close();
  });

  it('refuses a folder that is open in the same process, by any name', async () => {
    const folder = await temporaryFolder();
    const store = await LmdbStore.open(folder);
    for (const name of [folder, `${folder}/../${basename(folder)}/`]) {
      // By its own list: LMDB would at times wait for itself for ever.
      await expect(LmdbStore.open(name)).rejects.toThrow(
        new FolderInUse(
          `the data folder ${folder} is in use by this process (${process.pid}): stop that one first, or choose another folder`,
        ),
      );
    }
    await store.update('key0', put(entry));
    await store.close();
    await (await LmdbStore.open(folder)).close();
  });

  it('refuses a folder that another process has open, until that one was killed', async () => {
    const folder = await temporaryFolder();
    const owner = start(
      `
      const store = await LmdbStore.open(process.argv[1]);
      console.log('opened');
      for await (const _ of process.stdin) {
        await store.update('key0', () => ({ entry: { val: 'a', version: 1n } }));
        console.log('updated');
      }
      `,
      [folder],
    );
    await owner.line('opened');
    for (let i = 0; i < 3; i++) {
      await expect(LmdbStore.open(folder)).rejects.toThrow(
        new FolderInUse(
          `the data folder ${folder} is in use by process ${owner.pid}: stop that one first, or choose another folder`,
        ),
      );
    }
    owner.write('go on\n');
    await owner.line('updated');
    owner.signal('SIGKILL');
    await owner.exited;
    const store = await LmdbStore.open(folder);
    expect(await store.read('key0')).toEqual(entry);
    await store.close();
  });

  it('lets one of many processes that open a folder together have it', async () => {
    const folder = await temporaryFolder();
    const script = `
      process.stdin.once('data', async () => {
        await LmdbStore.open(process.argv[1]).then(
          () => console.log('opened'),
          (error) => console.log('result:', error.code),
        );
      });
      console.log('ready');
      `;
    const children = Array.from({ length: 4 }, () => start(script, [folder]));
    await Promise.all(children.map((child) => child.line('ready')));
    for (const child of children) child.write('go\n');
    const results = await Promise.all(children.map((child) => child.line(/opened|result/)));
    expect(results.sort()).toEqual(['opened', ...Array(3).fill('result: FOLDER_IN_USE')]);
  });

  it('refuses what is no data folder with what is wrong, and opens the next', async () => {
    const folder = await temporaryFolder();
    const good = join(folder, 'good');
    const store = await LmdbStore.open(good);
    await load(store, { writers: 8, updates: 400, val: 'x'.repeat(500) });
    await store.close();
    const cases: [name: string, message: string, prepare: (path: string) => Promise<unknown>][] = [
      ['file', 'EEXIST', (path) => writeFile(path, '')],
      ['below', 'ENOTDIR', (path) => writeFile(path, '')],
      ['folder', 'EISDIR', (path) => mkdir(join(path, 'data.mdb'), { recursive: true })],
      ['text', 'not an LMDB file', (path) => data(path, Buffer.from('hello'))],
      ['zeros', 'not an LMDB file', (path) => data(path, Buffer.alloc(20_000))],
      ['noise', 'not an LMDB file', (path) => data(path, Buffer.alloc(20_000, 'noise'))],
      ['short', 'cut short', (path) => cutShort(good, path, 5000)],
      ['shorter', 'cut short', (path) => cutShort(good, path, 200)],
      ['two pages', 'cut short', (path) => cutShort(good, path, 2 * 4096)],
    ];
    for (const [name, message, prepare] of cases) {
      const path = join(folder, name);
      await prepare(path);
      const opening = LmdbStore.open(name === 'below' ? join(path, 'x') : path);
      const error = await opening.catch((error) => error);
      expect(error, name).toBeInstanceOf(Unavailable);
      expect(error.message).toContain(path);
      expect(error.message).toContain(message);
    }
    const again = await LmdbStore.open(good);
    expect((await again.list(10)).entries.length).toBe(8);
    await again.close();
  });

  it('says that it cannot be had when its folder is gone', async () => {
    const folder = await temporaryFolder();
    const store = await LmdbStore.open(folder);
    await store.update('key0', put(entry));
    await rm(folder, { recursive: true });
    await expect(store.check()).rejects.toThrow(Unavailable);
    await expect(store.update('key0', put(entry))).rejects.toThrow(Unavailable);
    await store.close();
    expect(await stat(folder).catch((error) => error.code)).toBe('ENOENT');
  });

  it('says that it cannot read an entry that it did not write, and goes on', async () => {
    const folder = await temporaryFolder();
    const raw = open({ path: folder, noSubdir: false, keyEncoding: 'binary', encoding: 'binary' });
    await raw.put(Buffer.from('=key0'), Buffer.from('nonsense'));
    await raw.close();
    const store = await LmdbStore.open(folder);
    await expect(store.read('key0')).rejects.toThrow(Unavailable);
    await expect(store.list(10)).rejects.toThrow(Unavailable);
    const [broken, whole] = await Promise.allSettled([
      store.update('key0', put(entry)),
      store.update('key1', put(entry)),
    ]);
    expect(broken).toMatchObject({ status: 'rejected', reason: expect.any(Unavailable) });
    expect(whole).toEqual({ status: 'fulfilled', value: { entry } });
    await store.close();
  });

  it('refuses writes while there is no room, reads on, and writes when there is', async () => {
    const folder = await temporaryFolder();
    const child = start(
      `
      const store = await LmdbStore.open(process.argv[1]);
      const write = (key, length) =>
        store
          .update(key, () => ({ entry: { val: 'x'.repeat(length), version: 1n } }))
          .then(() => 'kept', (error) => error.code);
      const results = [];
      for (let i = 0; i < 200; i++) results.push(await write('key' + i, 100_000));
      const full = results.findIndex((result) => result !== 'kept');
      console.log('full:', full > 5, ...new Set(results.slice(full)));
      const together = await Promise.all([1, 2, 3].map((i) => write('more' + i, 100_000)));
      console.log('together:', ...new Set(together));
      console.log('read:', (await store.read('key0')).val.length, await store.read('key199'));
      await store.check();
      await store.close();
      console.log('closed');
      `,
      [folder],
      [],
      'ulimit -f 4096;',
    );
    await child.line('closed');
    expect(await child.line(/^full/)).toBe('full: true NO_ROOM');
    expect(await child.line(/^together/)).toBe('together: NO_ROOM');
    expect(await child.line(/^read/)).toBe('read: 100000 undefined');
    expect(await child.exited).toEqual({ code: 0, signal: null });
    // Of the limit it was the child that knew.
    const store = await LmdbStore.open(folder);
    const again = { val: 'x'.repeat(100_000), version: 2n };
    expect(await store.update('again', put(again))).toEqual({ entry: again });
    expect((await store.read('key0'))?.val).toHaveLength(100_000);
    await store.close();
  });

  it('says that it cannot be opened where its first pages have no room, and lives', async () => {
    const folder = await temporaryFolder();
    await writeFile(join(folder, 'lock.mdb'), Buffer.alloc(16 * 1024));
    const script = `
      await LmdbStore.open(process.argv[1]).catch((error) => console.log('result:', error.code));
      `;
    const child = start(script, [folder], [], 'ulimit -f 8;');
    expect(await child.exited).toEqual({ code: 0, signal: null });
    expect(await child.line(/^result/)).toBe('result: UNAVAILABLE');
    await (await LmdbStore.open(folder)).close();
  });

  it('loses nothing that it answered when it is killed at any moment', async () => {
    // Two at a time, because most of it is the start of the processes.
    await Promise.all([killRepeatedly(1), killRepeatedly(2)]);
  });
});

/** Ten times on one folder: opens it, writes from many sides, kills, and looks what is there. */
async function killRepeatedly(seed: number): Promise<void> {
  const folder = await temporaryFolder();
  const random = generator(seed);
  const acknowledged = new Map<string, bigint>();
  for (let round = 0; round < 10; round++) {
    let left = 1 + random(300);
    let reached = () => {};
    const busy = new Promise<void>((resolve) => {
      reached = resolve;
    });
    const child = start(
      `
      const value = ${value};
      const store = await LmdbStore.open(process.argv[1]);
      const write = async (key) => {
        for (;;) {
          const { entry } = await store.update(key, (current) => {
            const version = (current?.version ?? 0n) + 1n;
            return { entry: { val: value(key, version), version } };
          });
          process.stdout.write(key + ' ' + entry.version + '\\n');
        }
      };
      for (let i = 0; i < 32; i++) void write('key' + (i % 20));
      `,
      [folder],
      [],
      '',
      (line) => {
        const [, key, version] = /^(key\d+) (\d+)$/.exec(line) ?? [];
        if (key === undefined || version === undefined) return;
        const known = acknowledged.get(key) ?? 0n;
        if (BigInt(version) > known) acknowledged.set(key, BigInt(version));
        if (--left === 0) reached();
      },
    );
    await Promise.race([busy, child.exited]);
    await sleep(random(20)); // No wait for anything, but any moment of a commit.
    child.signal('SIGKILL');
    const exit = await child.exited;
    expect(exit, `seed ${seed}, round ${round}: ${child.stderr}`).toEqual({
      code: null,
      signal: 'SIGKILL',
    });
    const store = await LmdbStore.open(folder);
    for (const [key, version] of acknowledged) {
      const kept = await store.read(key);
      const title = `seed ${seed}, round ${round}, ${key}`;
      expect(kept?.version, title).toBeGreaterThanOrEqual(version);
      expect(kept?.val === value(key, kept?.version ?? 0n), title).toBe(true);
      // Also what nobody had an answer for may not be taken back any more.
      acknowledged.set(key, kept?.version ?? 0n);
    }
    await store.close();
  }
}

/** Up to 100 KiB that only this key and this version have. */
function value(key: string, version: bigint): string {
  const text = `${key}@${version};`;
  const length = version % 5n === 0n ? Number((version * 7919n) % 102_400n) : 100;
  return text.repeat(length / text.length + 1).slice(0, length);
}

async function load(
  store: LmdbStore,
  { writers, updates, val }: { writers: number; updates: number; val: string },
): Promise<void> {
  const write = async (key: string) => {
    for (let version = 1n; version <= updates / writers; version++) {
      await store.update(key, () => ({ entry: { val, version } }));
    }
  };
  await Promise.all(Array.from({ length: writers }, (_, i) => write(`key${i}`)));
}

/** How many transactions have changed the data. */
async function commits(folder: string): Promise<unknown> {
  const raw = open({ path: folder, noSubdir: false });
  const stats = raw.getStats();
  await raw.close();
  return Reflect.get(stats, 'lastTxnId');
}

/** A Node process with the built LmdbStore; ended with the test. `before` is shell that runs first. */
function start(
  script: string,
  args: string[],
  nodeArgs: string[] = [],
  before = '',
  onLine: (line: string) => void = () => {},
): Program {
  const source = new URL('../../dist/storage/stores/lmdb.js', import.meta.url).href;
  const module = `import { LmdbStore } from ${JSON.stringify(source)};${script}`;
  const node = ['--input-type=module', ...nodeArgs, '-e', module, ...args];
  const program = Program.start(
    'sh',
    ['-c', `${before} exec "$@"`, 'sh', process.execPath, ...node],
    {
      onLine,
    },
  );
  onTestFinished(() => program[Symbol.asyncDispose]());
  return program;
}

async function data(path: string, bytes: Buffer): Promise<void> {
  await mkdir(path);
  await writeFile(join(path, 'data.mdb'), bytes);
}

async function cutShort(from: string, path: string, size: number): Promise<void> {
  await cp(from, path, { recursive: true });
  await truncate(join(path, 'data.mdb'), size);
}

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'lmdb-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
