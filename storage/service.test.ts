import { describe, expect, it } from 'vitest';
import { rules } from './fence.js';
import { type Request, refused } from './protocol.js';
import { handle, UnknownOpError } from './service.js';
import { MemoryStore } from './stores/memory.js';

function service() {
  const store = new MemoryStore();
  const ask = (request: Partial<Request>) =>
    handle({ op: '', key: '', val: '', version: 0n, ...request }, store, rules.equal);
  return {
    read: (key: string) => ask({ op: 'read', key }),
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

  it('passes on what the store refuses', async () => {
    const full = { read: async () => undefined, update: async () => ({ refusal: 'full' }) };
    const request = { op: 'write', key: 'k', val: '', version: 1n };
    expect(await handle(request, full, rules.equal)).toEqual(refused('full'));
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
