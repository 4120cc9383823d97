import { randomUUID } from 'node:crypto';
import { describe, expect, inject, test, vi } from 'vitest';
import { Peer } from '../scripts/lib/peer.js';
import { startProxy } from '../scripts/lib/proxy.js';
import { EtcdLock } from './lock.js';
import { Unavailable } from './stores/store.js';

const endpoints = inject('etcd');
const [endpoint = ''] = endpoints;

function newName(): string {
  return `/lock-test/${randomUUID()}`;
}

describe.concurrent('a lock seen from outside', () => {
  test('has the holder’s key and token, whoever waits, and the next one’s after that', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const lock = new EtcdLock(peer.etcd, name);
    const gone = `lock '${name}' not found or expired`;
    expect(lock.gone).toBe(gone);
    expect(await lock.holder()).toBeUndefined();
    const [first, second] = [await peer.mutex(name), await peer.mutex(name)];
    await first.lock();
    const waiting = second.lock();
    await peer.untilQueued(name, 2);
    expect(await lock.holder()).toEqual({ key: Buffer.from(first.key), token: first.token, gone });
    await first.unlock();
    await waiting;
    expect(await lock.holder()).toEqual({
      key: Buffer.from(second.key),
      token: second.token,
      gone,
    });
    await peer.revoke(second.session);
    expect(await lock.holder()).toBeUndefined();
  });

  test('is not held by the holder of one whose name begins alike', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    for (const other of [`${name}2`, `${name}-`, name.slice(0, -1)]) {
      await (await peer.mutex(other)).lock();
    }
    expect(await new EtcdLock(peer.etcd, name).holder()).toBeUndefined();
  });

  test('is known as long as one member answers', async () => {
    await using proxy = await startProxy(endpoint);
    await using peer = await Peer.connect([proxy.endpoint, endpoint]);
    const name = newName();
    const mutex = await peer.mutex(name);
    await mutex.lock();
    const lock = new EtcdLock(peer.etcd, name);
    proxy.swallow();
    for (let i = 0; i < 5; i++) expect(await lock.holder()).toMatchObject({ token: mutex.token });
    proxy.pass();
  });

  test.each(['swallow', 'refuse', 'dropToClient'] as const)(
    'is not known of an etcd that does not answer (%s): that is said in time',
    async (how) => {
      await using proxy = await startProxy(endpoint);
      await using peer = await Peer.connect([proxy.endpoint]);
      const name = newName();
      const lock = new EtcdLock(peer.etcd, name);
      const asked = vi.spyOn(peer.etcd.kv, 'range');
      proxy[how]();
      const start = performance.now();
      const held = lock.holder();
      await expect(held).rejects.toBeInstanceOf(Unavailable);
      await expect(held).rejects.toThrow(
        new RegExp(`^etcd did not say who holds lock '${name}': .+$`),
      );
      expect(performance.now() - start).toBeLessThan(6000);
      const pending = () => asked.mock.settledResults.filter(({ type }) => type === 'incomplete');
      await vi.waitFor(() => expect(pending()).toEqual([]), 2000);
      proxy.pass();
      await vi.waitFor(async () => expect(await lock.holder()).toBeUndefined(), 10_000);
    },
  );
});
