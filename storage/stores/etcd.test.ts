// What etcd and the network may do to an entry: writers that come between, locks that are lost
// between the question and the write, answers that are lost, members that die, no room. The contract
// of all stores is tested in store.test.ts.

import { randomUUID } from 'node:crypto';
import { GRPCDeadlineExceededError, GRPCResourceExhastedError, GRPCUnavailableError } from 'etcd3';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { type Etcd, startEtcd } from '../../scripts/lib/etcd.js';
import { Peer } from '../../scripts/lib/peer.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { EtcdStore } from './etcd.js';
import { type Decision, type Entry, type Holder, NoRoom, Unavailable } from './store.js';

const endpoints = inject('etcd');
const [endpoint = ''] = endpoints;

const put = (val: string, version = 1n) => vi.fn((): Decision => ({ entry: { val, version } }));
/** A value that nothing else on a connection is as large as. */
const LARGE = 'x'.repeat(2000);
const keep = (current: Entry | undefined): Decision =>
  current ? { entry: current } : { refusal: 'nothing to keep' };
const increment = (current: Entry | undefined): Decision => ({
  entry: { val: '', version: (current?.version ?? 0n) + 1n },
});

describe.concurrent('the etcd store', () => {
  test('shows in etcd what it keeps', async () => {
    await using both = await connectBoth();
    await both.direct.update('key0', put('a value', 4703569812595502721n));
    const [kv] = await both.history('key0');
    expect(kv?.text).toMatch(/^[\w-]{12} 4703569812595502721 a value$/);
  });

  test('refuses an empty prefix', async () => {
    await using peer = await Peer.connect(endpoints);
    expect(() => new EtcdStore(peer.etcd, '')).toThrow(RangeError);
  });

  test.each(['/', 'a', 'é', '\u007f', '\u07ff', '\uffff', '\u{10ffff}', '\u0000'])(
    'lists all its keys and no others, in their order, under a prefix that ends in %j',
    async (last) => {
      await using peer = await Peer.connect(endpoints);
      const base = `/etcd-store-test/${randomUUID()}`;
      const store = new EtcdStore(peer.etcd, base + last);
      const around = ['!', '0', 'b', 'è', 'ê', '\u{10fffe}', '~'].filter((it) => it !== last);
      for (const end of ['', ...around]) await peer.etcd.put(base + end).value('x 1 y');
      const keys = ['', '\u0000', '10', '9', 'é', '\u{10ffff}\u{10ffff}'];
      for (const key of [...keys].reverse()) await store.update(key, put(key));
      const all = keys.map((key) => [key, { val: key, version: 1n }]);
      expect(await store.list(100)).toEqual({ entries: all, more: false });
      expect(await store.list(3)).toEqual({ entries: all.slice(0, 3), more: true });
    },
  );

  test('names the key of a value that is not its own, leaves it alone and works on', async () => {
    await using peer = await Peer.connect(endpoints);
    const prefix = newPrefix();
    const store = new EtcdStore(peer.etcd, prefix);
    const foreign = { a: '', b: 'hello', c: '5', d: 'AAAAAAAAAAAA 5x y', e: '5 value' };
    for (const [key, value] of Object.entries(foreign)) {
      await peer.etcd.put(prefix + key).value(value);
      await expect(store.read(key)).rejects.toThrow(
        `cannot read '${key}': its value in etcd was not put there by storage: "${value}"; delete`,
      );
      const decide = put('mine');
      const updated = store.update(key, decide);
      await expect(updated).rejects.toThrow(`nothing was written to '${key}': its value`);
      await expect(updated).rejects.toBeInstanceOf(Unavailable);
      expect(decide).not.toHaveBeenCalled();
      expect(await peer.etcd.get(prefix + key).string()).toBe(value);
    }
    await store.update('f', put('mine'));
    expect((await store.list(1)).entries).toEqual([['f', { val: 'mine', version: 1n }]]);
  });

  test('does not put an entry again that is to stay', async () => {
    await using both = await connectBoth();
    await both.direct.update('key0', put('a'));
    expect(await both.direct.update('key0', keep)).toEqual({ entry: { val: 'a', version: 1n } });
    expect(await both.history('key0')).toHaveLength(1);
  });

  test('does the updates of a key that wait at the same time in one transaction', async () => {
    await using both = await connectBoth();
    const { direct } = both;
    const all = Array.from({ length: 100 }, () => direct.update('key0', increment));
    const versions = (await Promise.all(all)).map((it) => 'entry' in it && it.entry.version);
    expect(versions).toEqual(all.map((_, i) => BigInt(i + 1)));
    // The first did not have to wait.
    expect((await both.history('key0')).map(({ version }) => version)).toEqual([1n, 100n]);
  });

  test('does each of them as if it were alone', async () => {
    await using both = await connectBoth();
    const { direct } = both;
    const [held, lost] = [await both.holder(), await both.holder()];
    await both.release(lost);
    const updates = [
      direct.update('key0', put('first')),
      direct.update('key0', put('a')),
      direct.update('key0', (current) => ({ refusal: `after ${current?.val}` })),
      direct.update('key0', () => {
        throw new Error('no decision');
      }),
      direct.update('key0', put('lost'), lost),
      direct.update('key0', put('held'), held),
      direct.update('key0', (current) => ({ refusal: `after ${current?.val}` }), held),
      direct.update('key0', put('b')),
    ];
    expect(await Promise.allSettled(updates)).toMatchObject([
      { value: { entry: { val: 'first' } } },
      { value: { entry: { val: 'a' } } },
      { value: { refusal: 'after a' } },
      { reason: new Error('no decision') },
      { value: { refusal: 'gone' } },
      { value: { entry: { val: 'held' } } },
      { value: { refusal: 'after held' } },
      { value: { entry: { val: 'b' } } },
    ]);
    const written = (await both.history('key0')).map(({ val }) => val);
    expect(written).toEqual(['first', 'a', 'held', 'b']);
  });

  test('counts every increment of three stores that compete', async () => {
    const peers = await Promise.all([1, 2, 3].map(() => Peer.connect(endpoints)));
    const prefix = newPrefix();
    const stores = peers.map((peer) => new EtcdStore(peer.etcd, prefix));
    const all = stores.flatMap((store) =>
      Array.from({ length: 34 }, () => store.update('counter', increment)),
    );
    const versions = (await Promise.all(all)).map((it) => 'entry' in it && it.entry.version);
    expect(new Set(versions).size).toBe(102);
    for (const store of stores)
      expect(await store.read('counter')).toMatchObject({ version: 102n });
    await Promise.all(peers.map((peer) => peer[Symbol.asyncDispose]()));
  });
});

// Not all at once: megabytes keep this process from seeing an answer within the second that it waits.
describe('the etcd store and large values', () => {
  test('lists more than fits into one answer', async () => {
    await using peer = await Peer.connect(endpoints);
    const store = new EtcdStore(peer.etcd, newPrefix());
    const val = 'x'.repeat(2 ** 20);
    for (let i = 10; i < 20; i++) await store.update(`${i}`, put(val));
    const { entries, more } = await store.list(5);
    expect(more).toBe(true);
    expect(entries.map(([key, entry]) => [key, entry.val === val])).toEqual(
      Array.from({ length: 5 }, (_, i) => [`${i + 10}`, true]),
    );
    // It is for people, and ends when there is more than they can look at.
    const many = await store.list(100);
    expect([many.entries.length, many.more]).toEqual([8, true]);
  });

  test('refuses of updates at once only the one that there is no room for', async () => {
    await using both = await connectBoth();
    const { direct } = both;
    const vals = ['first', 'a', 'x'.repeat(1_600_000)];
    const updates = vals.map((val) => direct.update('key0', put(val)));
    expect(await Promise.allSettled(updates)).toMatchObject([
      { value: { entry: { val: 'first' } } },
      { value: { entry: { val: 'a' } } },
      { reason: { code: 'NO_ROOM' } },
    ]);
    expect((await both.history('key0')).map(({ val }) => val)).toEqual(['first', 'a']);
  });

  test('says that there is no room for what etcd takes in no request, and works on', async () => {
    await using peer = await Peer.connect(endpoints);
    const store = new EtcdStore(peer.etcd, newPrefix());
    // Refused by etcd the one, by its gRPC the other.
    for (const size of [1_600_000, 3_000_000]) {
      const updated = store.update('big', put('x'.repeat(size)));
      await expect(updated).rejects.toBeInstanceOf(NoRoom);
      await expect(updated).rejects.toThrow(/nothing was written to 'big'.*--max-request-bytes/);
      expect(await store.read('big')).toBeUndefined();
    }
    expect(await store.update('big', put('small'))).toMatchObject({ entry: { val: 'small' } });
  });
});

describe.concurrent('an update between whose decision and transaction', () => {
  test('another writer came is decided again, on what that one wrote', async () => {
    await using both = await connectBoth();
    const { direct, through } = both;
    await direct.update('key0', put('old', 1n));
    const seen: unknown[] = [];
    const decision = await through.update('key0', (current) => {
      if (seen.push(current) === 1) both.hold(() => direct.update('key0', put('other', 5n)));
      return increment(current);
    });
    expect(decision).toEqual({ entry: { val: '', version: 6n } });
    expect(seen).toEqual([
      { val: 'old', version: 1n },
      { val: 'other', version: 5n },
    ]);
  });

  test('another writer came is refused if that is the decision now', async () => {
    await using both = await connectBoth();
    const { direct, through } = both;
    const decision = await through.update('key0', (current) => {
      if (current) return { refusal: `stale after ${current.version}` };
      both.hold(() => direct.update('key0', put('other', 5n)));
      return { entry: { val: 'mine', version: 4n } };
    });
    expect(decision).toEqual({ refusal: 'stale after 5' });
    expect(await direct.read('key0')).toEqual({ val: 'other', version: 5n });
  });

  test.each([false, true])(
    'the lock was lost is refused and changes nothing (taken by the next one: %s)',
    async (taken) => {
      await using both = await connectBoth();
      const { direct, through, peer } = both;
      const holder = await both.holder();
      const decide = vi.fn((current: Entry | undefined) => {
        both.hold(async () => {
          await both.release(holder);
          // A key of the same name is not the same key.
          if (taken) await peer.etcd.put(holder.key).value('next');
        });
        return increment(current);
      });
      expect(await through.update('key0', decide, holder)).toEqual({ refusal: 'gone' });
      expect(decide).toHaveBeenCalledTimes(1);
      expect(await direct.read('key0')).toBeUndefined();
    },
  );

  test('the lock was lost and the next holder wrote is refused', async () => {
    await using both = await connectBoth();
    const { direct, through } = both;
    const holder = await both.holder();
    const stale = (current: Entry | undefined): Decision => {
      if (!current) {
        both.hold(async () => {
          await both.release(holder);
          await direct.update('key0', put('next', 5n));
        });
      }
      return { entry: { val: 'stale', version: 4n } };
    };
    expect(await through.update('key0', stale, holder)).toEqual({ refusal: 'gone' });
    expect(await both.history('key0')).toHaveLength(1);
  });
});

describe.concurrent('with a holder', () => {
  test('writes while the lock is held, and not once it is lost', async () => {
    await using both = await connectBoth();
    const { direct } = both;
    const holder = await both.holder();
    expect(await direct.update('key0', increment, holder)).toHaveProperty('entry');
    expect(await direct.update('key0', keep, holder)).toHaveProperty('entry');
    await both.release(holder);
    expect(await direct.update('key0', increment, holder)).toEqual({ refusal: 'gone' });
    expect(await direct.update('key0', keep, holder)).toEqual({ refusal: 'gone' });
    expect(await direct.read('key0')).toMatchObject({ version: 1n });
  });
});

describe.concurrent('when the answer to a write is lost', () => {
  test('it is accepted, having been put once', async () => {
    await using both = await connectBoth();
    const decide = vi.fn((current: Entry | undefined) => {
      both.loseAnswer(async () => {});
      return increment(current);
    });
    expect(await both.through.update('key0', decide)).toEqual({ entry: { val: '', version: 1n } });
    expect(decide).toHaveBeenCalledTimes(1);
    expect(both.lost()).toBe(true);
    expect(await both.history('key0')).toHaveLength(1);
  });

  test('it is accepted, also if the lock was lost after it', async () => {
    await using both = await connectBoth();
    const holder = await both.holder();
    const decide = (current: Entry | undefined) => {
      both.loseAnswer(() => both.release(holder));
      return increment(current);
    };
    expect(await both.through.update('key0', decide, holder)).toHaveProperty('entry');
    expect(await both.history('key0')).toHaveLength(1);
  });

  test('and another writer came after it, it may have happened, says the error', async () => {
    await using both = await connectBoth();
    const { direct, through } = both;
    const decide = vi.fn(() => {
      both.loseAnswer(() => direct.update('key0', increment));
      return { entry: { val: 'mine', version: 1n } };
    });
    const updated = through.update('key0', decide);
    await expect(updated).rejects.toBeInstanceOf(Unavailable);
    await expect(updated).rejects.toThrow(
      /^the write of 'key0' may have happened: .*another write/,
    );
    expect(decide).toHaveBeenCalledTimes(1);
    expect((await both.history('key0')).map(({ entry }) => entry)).toEqual(['1 mine', '2 ']);
  });

  test('and etcd stays away, it may have happened, says the error in time', async () => {
    await using both = await connectBoth();
    const start = performance.now();
    const updated = both.through.update('key0', (current) => {
      both.loseAnswer(() => new Promise(() => {}));
      return increment(current);
    });
    await expect(updated).rejects.toBeInstanceOf(Unavailable);
    await expect(updated).rejects.toThrow(
      /^the write of 'key0' may have happened, or may yet: etcd/,
    );
    expect(performance.now() - start).toBeLessThan(8000);
    expect(await both.direct.read('key0')).toMatchObject({ version: 1n });
  });
});

describe.concurrent('when a write is lost on its way', () => {
  test('it is put by the next attempt, once', async () => {
    await using both = await connectBoth();
    const decide = vi.fn((): Decision => {
      both.loseRequest(async () => {});
      return { entry: { val: LARGE, version: 1n } };
    });
    expect(await both.through.update('key0', decide)).toHaveProperty('entry');
    expect(decide).toHaveBeenCalledTimes(1);
    expect(await both.history('key0')).toHaveLength(1);
  });

  test('and another writer came meanwhile, it may have happened, as far as it can tell', async () => {
    await using both = await connectBoth();
    const { direct, through } = both;
    const updated = through.update('key0', () => {
      both.loseRequest(() => direct.update('key0', put('other')));
      return { entry: { val: LARGE, version: 1n } };
    });
    await expect(updated).rejects.toThrow(/may have happened: /);
    expect(await both.history('key0')).toHaveLength(1);
  });

  test('and the lock meanwhile too, it is refused, for it never can happen', async () => {
    await using both = await connectBoth();
    const holder = await both.holder();
    const updated = both.through.update(
      'key0',
      () => {
        both.loseRequest(() => both.release(holder));
        return { entry: { val: LARGE, version: 1n } };
      },
      holder,
    );
    expect(await updated).toEqual({ refusal: 'gone' });
    expect(await both.history('key0')).toEqual([]);
  });
});

describe.concurrent('when a write is given up', () => {
  const away = new GRPCUnavailableError('14 UNAVAILABLE: No connection established');
  const late = new GRPCDeadlineExceededError('4 DEADLINE_EXCEEDED: Deadline exceeded');
  const full = new GRPCResourceExhastedError('8 etcdserver: mvcc: database space exceeded');

  test.each([
    ['that never was sent', [away], 'nothing was written', Unavailable],
    ['for want of room', [full], 'nothing was written', NoRoom],
    ['that never was sent, then for want of room', [away, full], 'nothing was written', NoRoom],
    ['after an answer was lost', [late, away], 'may have happened, or may yet', Unavailable],
    ['for want of room, but an answer was lost', [late, full], 'may have happened', Unavailable],
  ])('%s, the error tells whether it may have happened', async (_, errors, text, type) => {
    await using peer = await Peer.connect(endpoints);
    const store = new EtcdStore(peer.etcd, newPrefix());
    const updated = store.update('key0', (current) => {
      const { kv } = peer.etcd;
      const txn = kv.txn.bind(kv);
      let puts = 0;
      vi.spyOn(kv, 'txn').mockImplementation((request, call) =>
        request.compare ? Promise.reject(errors[puts++] ?? errors.at(-1)) : txn(request, call),
      );
      return increment(current);
    });
    await expect(updated).rejects.toThrow(text);
    await expect(updated).rejects.toBeInstanceOf(type);
  });
});

test('a write that etcd made while it said that it is full is accepted', async () => {
  await using both = await connectBoth();
  const { kv } = both.peer.etcd;
  const txn = kv.txn.bind(kv);
  vi.spyOn(kv, 'txn').mockImplementation(async (request, call) => {
    const answer = await txn(request, call);
    if (!request.compare) return answer;
    throw new GRPCResourceExhastedError('8 etcdserver: mvcc: database space exceeded');
  });
  expect(await both.direct.update('key0', put('a'))).toEqual({ entry: { val: 'a', version: 1n } });
  expect(await both.history('key0')).toHaveLength(1);
});

describe.concurrent('when etcd is silent', () => {
  test.each(['paused', 'killed'] as const)(
    '(%s) every call rejects in time, and nothing goes on after it',
    async (how) => {
      await using etcd = await startEtcd();
      await using peer = await Peer.connect(etcd.endpoints);
      const store = new EtcdStore(peer.etcd, '/storage/');
      await store.update('key0', put('a'));
      const sent = [vi.spyOn(peer.etcd.kv, 'txn'), vi.spyOn(peer.etcd.kv, 'range')];
      if (how === 'paused') etcd.members[0]?.pause();
      else await etcd.members[0]?.kill();
      const decide = put('b');
      const start = performance.now();
      const reads = Promise.allSettled([store.read('key0'), store.list(10)]);
      const updates = Promise.allSettled(
        Array.from({ length: 20 }, () => store.update('key0', decide)),
      );
      await expect(store.check()).rejects.toBeInstanceOf(Unavailable);
      expect(performance.now() - start).toBeLessThan(6000);
      const reason = expect.any(Unavailable);
      for (const end of await reads) expect(end).toMatchObject({ reason });
      const message = expect.stringMatching(/^nothing was written to 'key0': /);
      for (const end of await updates) {
        expect(end).toMatchObject({ reason: { code: 'UNAVAILABLE', message } });
      }
      expect(performance.now() - start).toBeLessThan(8000);
      expect(decide).not.toHaveBeenCalled();
      const pending = () =>
        sent.flatMap((spy) => spy.mock.settledResults.filter(({ type }) => type === 'incomplete'));
      await vi.waitFor(() => expect(pending()).toEqual([]), 2000);
      if (how === 'paused') etcd.members[0]?.resume();
      else await etcd.members[0]?.restart();
      await vi.waitFor(() => store.check(), 10_000);
      expect(await store.read('key0')).toEqual({ val: 'a', version: 1n });
    },
  );
});

test('when etcd is full, it says that there is no room, and still reads', async () => {
  await using etcd = await startEtcd({ args: ['--quota-backend-bytes', '2000000'] });
  await using peer = await Peer.connect(etcd.endpoints);
  const store = new EtcdStore(peer.etcd, '/storage/');
  const val = 'x'.repeat(200_000);
  const fill = async () => {
    for (let i = 0; i < 100; i++) await store.update(`${i}`, put(val));
  };
  const filling = fill();
  await expect(filling).rejects.toBeInstanceOf(NoRoom);
  await expect(filling).rejects.toThrow(/^nothing was written to '\d+': etcd is full/);
  await expect(store.update('0', put('small'))).rejects.toBeInstanceOf(NoRoom);
  expect(await store.read('0')).toMatchObject({ val });
  await store.check();
});

test('when etcd becomes full under many writers, no write that it made is said not to be', async () => {
  await using etcd = await startEtcd({ args: ['--quota-backend-bytes', '3000000'] });
  await using peer = await Peer.connect(etcd.endpoints);
  const store = new EtcdStore(peer.etcd, '/storage/');
  const val = 'x'.repeat(100_000);
  const errors = new Map<string, string | undefined>();
  let full = false;
  const writer = async (_: unknown, i: number) => {
    for (let j = 0; !full; j++) {
      const error = await store.update(`${i}-${j}`, put(val)).then(() => undefined, String);
      errors.set(`${i}-${j}`, error);
      full ||= error !== undefined;
    }
  };
  await Promise.all(Array.from({ length: 100 }, writer));
  for (const [key, error] of errors) {
    const kept = (await store.read(key)) !== undefined;
    if (error === undefined) expect([key, kept]).toEqual([key, true]);
    else if (error.includes('nothing was written'))
      expect([key, kept, error]).toEqual([key, false, error]);
    else expect(error).toMatch(/may have happened/);
  }
});

describe('where etcd asks who we are', () => {
  let etcd: Etcd;

  beforeAll(async () => {
    etcd = await startEtcd();
    await etcd.ctl('role', 'add', 'storage');
    await etcd.ctl('role', 'grant-permission', 'storage', 'readwrite', '/storage/', '--prefix');
    for (const user of ['root:root', 'alice:secret']) await etcd.ctl('user', 'add', user);
    await etcd.ctl('user', 'grant-role', 'root', 'root');
    await etcd.ctl('user', 'grant-role', 'alice', 'storage');
    await etcd.ctl('auth', 'enable');
  });

  afterAll(() => etcd?.stop());

  test('a permission on the prefix is all it needs, and another prefix is denied', async () => {
    await using alice = await Peer.connect(etcd.endpoints, { user: 'alice:secret' });
    const store = new EtcdStore(alice.etcd, '/storage/');
    await store.check();
    await store.update('key0', put('a'));
    expect((await store.list(10)).entries).toEqual([['key0', { val: 'a', version: 1n }]]);
    const other = new EtcdStore(alice.etcd, '/other/');
    const calls = [
      other.check(),
      other.read('key0'),
      other.update('key0', put('a')),
      other.list(1),
    ];
    for (const end of await Promise.allSettled(calls)) {
      const message = expect.stringContaining('etcdserver: permission denied');
      expect(end).toMatchObject({ reason: { code: 'UNAVAILABLE', message } });
    }
  });
});

test('three stores, each on its member, lose nothing when the leader dies under load', async () => {
  await using etcd = await startEtcd({ members: 3 });
  const peers = await Promise.all(etcd.endpoints.map((endpoint) => Peer.connect([endpoint])));
  const leader = await leaderOf(peers);
  const stores = peers.map((peer) => new EtcdStore(peer.etcd, '/storage/'));
  const keys = ['a', 'b'];
  const acknowledged: Map<string, bigint> = new Map();
  const undone = new Set<string>();
  const counts = peers.map(() => 0);
  let stopped = false;
  const writers = stores.flatMap((store, i) =>
    Array.from({ length: 4 }, async (_, j) => {
      for (let n = 0; !stopped; n++) {
        const key = keys[(j + n) % keys.length] ?? '';
        const val = `${i}-${j}-${n}`;
        try {
          // A value is the list of all that were accepted, its version their number.
          const decision = await store.update(key, (current) => ({
            entry: {
              val: current ? `${current.val},${val}` : val,
              version: (current?.version ?? 0n) + 1n,
            },
          }));
          if ('refusal' in decision) throw new Error(decision.refusal);
          acknowledged.set(val, decision.entry.version);
          counts[i] = (counts[i] ?? 0) + 1;
        } catch (error) {
          if (!(error instanceof Unavailable)) throw error;
          if (error.message.startsWith('nothing was written')) undone.add(val);
        }
      }
    }),
  );
  const more = (count: number, of: (i: number) => boolean) => {
    const goals = counts.map((done, i) => (of(i) ? done + count : 0));
    return vi.waitUntil(() => goals.every((goal, i) => (counts[i] ?? 0) >= goal), 30_000);
  };
  try {
    await more(20, () => true);
    await etcd.members[leader]?.kill();
    await more(20, (i) => i !== leader);
  } finally {
    stopped = true;
    await Promise.all(writers);
  }
  const survivor = peers[(leader + 1) % 3];
  const places = new Map<string, bigint>();
  for (const key of keys) {
    const history = await historyOf(survivor, `/storage/${key}`);
    const vals = history.at(-1)?.val.split(',') ?? [];
    for (const { val, version } of history) {
      // Whatever was there is what is there now, up to its version: nothing was lost on the way.
      expect(val).toBe(vals.slice(0, Number(version)).join(','));
    }
    for (const [i, val] of vals.entries()) {
      expect(places.has(val)).toBe(false);
      places.set(val, BigInt(i + 1));
    }
  }
  for (const [val, version] of acknowledged) expect([val, places.get(val)]).toEqual([val, version]);
  for (const val of undone) expect(places.has(val)).toBe(false);
  await Promise.all(peers.map((peer) => peer[Symbol.asyncDispose]()));
});

function newPrefix(): string {
  return `/etcd-store-test/${randomUUID()}/`;
}

/** Two stores of the same data, one straight and one through a proxy, and what to do to that one. */
async function connectBoth() {
  const proxy = await startProxy(endpoint);
  const peer = await Peer.connect(endpoints);
  const faulty = await Peer.connect([proxy.endpoint]);
  const prefix = newPrefix();
  let lost = false;
  return {
    peer,
    direct: new EtcdStore(peer.etcd, prefix),
    through: new EtcdStore(faulty.etcd, prefix),
    /** What follows is sent, and arrives when `meanwhile` is done. */
    hold(meanwhile: () => PromiseLike<unknown>): void {
      proxy.dropToServer();
      meanwhile().then(() => proxy.pass());
    },
    /** What follows takes effect, the answer never comes; the next attempt comes after `meanwhile`. */
    async loseAnswer(meanwhile: () => PromiseLike<unknown>): Promise<void> {
      await proxy.cutAfterRequest();
      lost = true;
      proxy.refuse();
      await meanwhile();
      proxy.pass();
    },
    /** Whether an answer was. */
    lost: () => lost,
    /** As `loseAnswer`, but what follows, {@link LARGE}, never arrives. */
    async loseRequest(meanwhile: () => PromiseLike<unknown>): Promise<void> {
      proxy.dropToServer();
      await proxy.traffic('toServer', LARGE.length);
      proxy.cut();
      proxy.refuse();
      await meanwhile();
      proxy.pass();
    },
    /** The holder of a new lock. */
    async holder(): Promise<Holder> {
      const key = Buffer.from(`${newPrefix()}1`);
      const { header } = await peer.etcd.put(key).value('');
      return { key, token: BigInt(header.revision), gone: 'gone' };
    },
    async release({ key }: Holder): Promise<void> {
      await peer.etcd.delete().key(key);
    },
    /** All that was ever put there, oldest first. */
    history: (key: string) => historyOf(peer, prefix + key),
    async [Symbol.asyncDispose]() {
      await faulty[Symbol.asyncDispose]();
      await peer[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
    },
  };
}

async function historyOf(peer: Peer | undefined, key: string) {
  const found: { text: string; entry: string; version: bigint; val: string }[] = [];
  for (let revision: string | undefined = '0'; peer && revision; ) {
    const { kvs } = await peer.etcd.kv.range({ key: Buffer.from(key), revision });
    const [kv] = kvs;
    const text = kv?.value.toString() ?? '';
    const [, version = '0', val = ''] = text.split(' ');
    if (kv) found.unshift({ text, entry: `${version} ${val}`, version: BigInt(version), val });
    revision = kv && String(BigInt(kv.mod_revision) - 1n);
  }
  return found;
}

async function leaderOf(peers: readonly Peer[]): Promise<number> {
  for (const [i, peer] of peers.entries()) {
    const { header, leader } = await peer.etcd.maintenance.status();
    if (header.member_id === leader) return i;
  }
  throw new Error('expected a leader');
}
