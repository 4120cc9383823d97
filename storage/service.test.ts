import { describe, expect, it } from 'vitest';
import { type Rule, rules } from './fence.js';
import type { Request } from './protocol.js';
import { handle, type Lock, UnknownOpError } from './service.js';
import { MemoryStore } from './stores/memory.js';
import { Unavailable } from './stores/store.js';

function service(rule: Rule = rules.equal, lock?: Lock, store = new MemoryStore()) {
  const ask = async (request: Partial<Request>) => {
    const whole = { op: '', key: '', val: '', version: 0n, ...request };
    return (await handle(whole, { store, rule, lock })).response;
  };
  return {
    read: (key: string, version = 0n) => ask({ op: 'read', key, version }),
    write: (key: string, val: string, version: bigint) => ask({ op: 'write', key, val, version }),
    ask,
  };
}

describe('handle', () => {
  it('does not find a key that nobody has written', async () => {
    const { read } = service();
    expect(await read('key0')).toEqual({ val: '', version: -1n, err: 'key not found' });
    expect(await read('__proto__')).toEqual({ val: '', version: -1n, err: 'key not found' });
  });

  it('stores an unknown key under any version and answers with what it stored', async () => {
    const { read, write } = service();
    const answer = { val: 'value', version: -(2n ** 63n), err: '' };
    expect(await write('key0', 'value', -(2n ** 63n))).toEqual(answer);
    expect(await read('key0')).toEqual(answer);
  });

  it('overwrites a key under its version', async () => {
    const { read, write } = service();
    await write('key0', 'old', 7n);
    expect(await write('key0', 'new', 7n)).toEqual({ val: 'new', version: 7n, err: '' });
    expect(await read('key0')).toEqual({ val: 'new', version: 7n, err: '' });
  });

  it('refuses a write under another version and changes nothing', async () => {
    const { read, write } = service();
    await write('key0', 'value from client 2', 0x694d82254e18770an);
    for (const version of [0x694d82254e187709n, 0x694d82254e18770bn]) {
      const { val, version: none, err } = await write('key0', 'value from client 1', version);
      expect([val, none]).toEqual(['', -1n]);
      expect(err).toMatch(
        /^given version \(694d82254e18770[9b]\) is different from the existing version \(694d82254e18770a\)$/,
      );
    }
    expect((await read('key0')).val).toBe('value from client 2');
  });

  it('keeps the versions of keys apart', async () => {
    const { write } = service();
    await write('a', '', 1n);
    expect((await write('b', '', 2n)).err).toBe('');
    expect((await write('a', '', 2n)).err).not.toBe('');
  });

  it('rejects an operation it does not know', async () => {
    const { ask } = service();
    for (const op of ['', 'READ', 'delete', 'constructor']) {
      const rejected = ask({ op });
      await expect(rejected).rejects.toBeInstanceOf(UnknownOpError);
      await expect(rejected).rejects.toThrow(`unknown op: ${op}`);
    }
  });
});

describe('under a rule that fences reads', () => {
  it('a read with a token shuts out an older holder before the first write', async () => {
    const { read, write } = service(rules.monotonic);
    expect((await read('key0', 7n)).err).toBe('key not found');
    expect((await write('key0', 'old', 6n)).err).toMatch(/given 6 is lower than 7/);
    expect(await write('key0', 'new', 7n)).toEqual({ val: 'new', version: 7n, err: '' });
    expect(await read('key0', 9n)).toEqual({ val: 'new', version: 9n, err: '' });
    expect((await write('key0', 'stale', 8n)).err).toMatch(/given 8 is lower than 9/);
    expect((await read('key0')).val).toBe('new');
  });

  it('a read with an old token is refused, and learns nothing', async () => {
    const { read, write } = service(rules.monotonic);
    await write('key0', 'secret', 7n);
    expect(await read('key0', 6n)).toMatchObject({ val: '', version: -1n });
    expect((await read('key0', 6n)).err).toMatch(/^stale fencing token: given 6 is lower than 7/);
  });

  it('a read without a token is always answered and moves nothing', async () => {
    const { read, write } = service(rules.monotonic);
    expect((await read('key0')).err).toBe('key not found');
    await write('key0', 'v', 7n);
    for (const none of [0n, -1n]) {
      expect(await read('key0', none)).toEqual({ val: 'v', version: 7n, err: '' });
    }
    expect((await write('key0', 'w', 7n)).err).toBe('');
  });

  it('a write without a token is refused', async () => {
    const { write, ask } = service(rules.monotonic);
    expect((await write('key0', 'v', 0n)).err).toBe('expected a fencing token above 0, got 0');
    expect((await ask({ op: 'write', key: 'key0' })).err).toMatch(/^expected a fencing token/);
  });

  it('keeps the tokens of keys apart', async () => {
    const { write } = service(rules.monotonic);
    await write('a', '', 9n);
    expect((await write('b', '', 2n)).err).toBe('');
  });
});

it('under a rule that does not, a read with a version is upstream’s read', async () => {
  const { read, write } = service();
  expect((await read('key0', 7n)).err).toBe('key not found');
  expect((await write('key0', 'v', 6n)).err).toBe('');
  expect(await read('key0', 7n)).toEqual({ val: 'v', version: 6n, err: '' });
});

describe('with a lock to ask', () => {
  const gone = "lock '/lock' not found or expired";
  const holding = (token: bigint | undefined) => ({
    gone,
    holder: async () => (token === undefined ? undefined : { key: Buffer.from('k'), token, gone }),
  });

  it('only the holder’s token is accepted, by writes and by reads that carry one', async () => {
    for (const op of ['write', 'read']) {
      const { ask } = service(rules.holder, holding(7n));
      const outcomes = [6n, 7n, 8n].map(
        async (version) => (await ask({ op, key: 'k', version })).err,
      );
      expect(await Promise.all(outcomes)).toEqual([
        'stale fencing token: given 6 is lower than 7',
        op === 'read' ? 'key not found' : '',
        "invalid fencing token: given 8 is ahead of 7, the holder's",
      ]);
    }
  });

  it('nobody’s token is accepted while nobody holds it', async () => {
    const { ask, read } = service(rules.holder, holding(undefined));
    expect((await ask({ op: 'write', key: 'k', version: 7n })).err).toBe(gone);
    expect((await read('k')).err).toBe('key not found');
  });

  it('a holder whose etcd began anew is told both numbers and the way out', async () => {
    const lock = holding(1200n);
    const store = new MemoryStore();
    await service(rules.holder, lock, store).write('k', 'v', 1200n);
    const { write } = service(rules.holder, holding(5n), store);
    expect((await write('k', 'w', 5n)).err).toBe(
      'stale fencing token: given 5 is lower than 1200 (if etcd began anew or a lease ID was used, see storage reset-fence)',
    );
  });

  it('a write is rejected when nobody says who holds it, and nothing is written', async () => {
    const lock = { gone, holder: () => Promise.reject(new Unavailable('etcd is silent')) };
    const { write, read } = service(rules.holder, lock);
    await expect(write('k', 'v', 7n)).rejects.toThrow(
      new Unavailable('nothing was written: etcd is silent'),
    );
    expect((await read('k')).err).toBe('key not found');
  });
});
