// The function form: whatever happens inside or to the lock, the caller gets what fn gave.

import { randomUUID } from 'node:crypto';
import { describe, expect, inject, test } from 'vitest';
import { Peer } from '../../scripts/lib/peer.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { SessionExpired, Timeout } from './errors.js';
import { withLock } from './with-lock.js';

const endpoints = inject('etcd');

function newName(): string {
  return `/with-lock-test/${randomUUID()}`;
}

describe.concurrent('withLock', () => {
  test('runs the function under the lock, with its token, and frees it', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const session = await peer.session();
    const value = await withLock(session, name, {}, async ({ token, signal }) => {
      expect(await peer.queue(name)).toMatchObject([{ lease: session.leaseId, revision: token }]);
      expect(signal.aborted).toBe(false);
      return 'value';
    });
    expect(value).toBe('value');
    expect(await peer.queue(name)).toEqual([]);
    expect(session.expired).toBe(false);
  });

  test('with a client it makes a session for this call only', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const lease = await withLock(peer.etcd, name, { ttl: 7 }, async () => {
      const [{ lease } = { lease: 0n }] = await peer.queue(name);
      const { grantedTTL } = await peer.etcd.leaseClient.leaseTimeToLive({ ID: String(lease) });
      expect(grantedTTL).toBe('7');
      return lease;
    });
    const { TTL } = await peer.etcd.leaseClient.leaseTimeToLive({ ID: String(lease) });
    expect(TTL).toBe('-1');
  });

  test('passes on what the function throws, and frees the lock', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const mine = new Error('mine');
    const failing = withLock(await peer.session(), name, {}, () => {
      throw mine;
    });
    await expect(failing).rejects.toBe(mine);
    expect(await peer.queue(name)).toEqual([]);
  });

  test.each(['value', 'error'])(
    'keeps the function’s %s when the lock is lost under it',
    async (what) => {
      await using peer = await Peer.connect(endpoints);
      const session = await peer.session({ ttl: 2 });
      const mine = new Error('mine');
      const result = withLock(session, newName(), {}, async ({ signal }) => {
        const lost = new Promise((resolve) => signal.addEventListener('abort', resolve));
        await peer.etcd.leaseClient.leaseRevoke({ ID: String(session.leaseId) });
        await lost;
        expect(signal.reason).toBeInstanceOf(SessionExpired);
        if (what === 'error') throw mine;
        return what;
      });
      if (what === 'error') await expect(result).rejects.toBe(mine);
      else expect(await result).toBe(what);
    },
  );

  test('keeps the value, in bounded time, when etcd is gone at the release', async () => {
    await using proxy = await startProxy(endpoints[0] ?? '');
    await using peer = await Peer.connect([proxy.endpoint]);
    let start = 0;
    const value = await withLock(peer.etcd, newName(), { ttl: 2 }, () => {
      proxy.swallow();
      start = performance.now();
      return 'value';
    });
    expect(value).toBe('value');
    expect(performance.now() - start).toBeLessThan(2000 + 1000);
    proxy.pass();
  });

  test('does not run the function when the wait ends first', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const holder = await peer.mutex(name);
    await holder.lock();
    const never = () => expect.unreachable();
    await expect(withLock(peer.etcd, name, { timeout: 1000 }, never)).rejects.toThrow(Timeout);
    const reason = new Error('enough');
    const signal = AbortSignal.abort(reason);
    await expect(withLock(peer.etcd, name, { signal }, never)).rejects.toBe(reason);
    expect(await peer.queue(name)).toMatchObject([{ key: holder.key }]);
  });

  test('calls in one session exclude each other too, first come, first served', async () => {
    await using peer = await Peer.connect(endpoints);
    const session = await peer.session();
    const name = newName();
    let inside = 0;
    const order: number[] = [];
    const calls = Array.from({ length: 5 }, (_, i) =>
      withLock(session, name, {}, async ({ token }) => {
        expect(++inside).toBe(1);
        await peer.revision();
        inside--;
        order.push(i);
        return token;
      }),
    );
    const givenUp = withLock(session, name, { signal: AbortSignal.abort('no') }, () => {});
    await expect(givenUp).rejects.toBe('no');
    const tokens = await Promise.all(calls);
    expect(order).toEqual([0, 1, 2, 3, 4]);
    expect(new Set(tokens).size).toBe(5);
  });
});
