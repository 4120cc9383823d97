// What the one-object lock adds to session and mutex: its own states, errors and identity.

import { randomUUID } from 'node:crypto';
import { describe, expect, inject, test, vi } from 'vitest';
import { Peer } from '../../scripts/lib/peer.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import {
  AlreadyHeld,
  LockConflict,
  LockLost,
  NotLocked,
  SessionExpired,
  Unreachable,
} from './errors.js';
import { LeaseLock } from './lease-lock.js';
import type { Mutex } from './mutex.js';

const endpoints = inject('etcd');

function newKey(): string {
  return `/lease-lock-test/${randomUUID()}`;
}

describe.concurrent('a lease lock', () => {
  test('hands out the create revision of its key, whose value is its owner', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    await using lock = new LeaseLock(peer.etcd, key);
    expect([lock.isLocked, lock.fencingToken]).toEqual([false, 0n]);
    const token = await lock.acquire();
    expect([lock.isLocked, lock.fencingToken]).toEqual([true, token]);
    expect(await peer.queue(key)).toMatchObject([{ value: lock.owner, revision: token }]);
    expect(lock.owner).toMatch(/^[0-9a-f]{8}-[0-9a-f-]{27}$/);
  });

  test('is refused at once while another holds it, be it a lease lock or a mutex', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    await using holder = new LeaseLock(peer.etcd, key);
    await using other = new LeaseLock(peer.etcd, key);
    await holder.acquire();
    await expect(other.acquire()).rejects.toThrow(new LockConflict(key));
    expect(await peer.queue(key)).toHaveLength(1);
    await holder.release();
    const mutex = await peer.mutex(key);
    await mutex.lock();
    await expect(other.acquire()).rejects.toMatchObject({ code: 'LOCK_CONFLICT', key });
    expect([other.isLocked, other.fencingToken]).toEqual([false, 0n]);
    await mutex.unlock();
    await other.acquire();
  });

  test('is not acquired twice by one object, not even at the same time', async () => {
    await using peer = await Peer.connect(endpoints);
    await using lock = new LeaseLock(peer.etcd, newKey());
    const [first, second] = await Promise.allSettled([lock.acquire(), lock.acquire()]);
    expect(first.status).toBe('fulfilled');
    expect(second).toMatchObject({ reason: expect.any(AlreadyHeld) });
    await expect(lock.acquire()).rejects.toThrow(AlreadyHeld);
    expect(lock.isLocked).toBe(true);
  });

  test('a release frees it at once, lease and all, and a second release says so', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    await using lock = new LeaseLock(peer.etcd, key);
    await expect(lock.release()).rejects.toThrow(NotLocked);
    await lock.acquire();
    const [{ lease } = { lease: 0n }] = await peer.queue(key);
    await lock.release();
    expect(await peer.queue(key)).toEqual([]);
    const { TTL } = await peer.etcd.leaseClient.leaseTimeToLive({ ID: String(lease) });
    expect(TTL).toBe('-1');
    await expect(lock.release()).rejects.toThrow(NotLocked);
  });

  test('tokens only grow, also when the key was gone in between', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    const locks = [new LeaseLock(peer.etcd, key), new LeaseLock(peer.etcd, key)];
    let last = 0n;
    for (const lock of [...locks, ...locks]) {
      const token = await lock.acquire();
      expect(token).toBeGreaterThan(last);
      last = token;
      await lock.release();
    }
  });

  test('says LockLost when its lease was revoked, even if nobody else took it', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    await using lock = new LeaseLock(peer.etcd, key, { ttl: 2 });
    await lock.acquire();
    const lost = new Promise((resolve) => lock.signal.addEventListener('abort', resolve));
    const [{ lease } = { lease: 0n }] = await peer.queue(key);
    await peer.etcd.leaseClient.leaseRevoke({ ID: String(lease) });
    await lost;
    expect([lock.isLocked, lock.fencingToken]).toEqual([false, 0n]);
    expect(lock.signal.reason).toBeInstanceOf(SessionExpired);
    await expect(lock.release()).rejects.toThrow(new LockLost(key));
  });

  test('says LockLost when its key was deleted, and does not free the next holder’s', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    await using lock = new LeaseLock(peer.etcd, key);
    await lock.acquire();
    await peer.etcd.delete().prefix(`${key}/`);
    const next: Mutex = await peer.mutex(key);
    await next.lock();
    await expect(lock.release()).rejects.toThrow(LockLost);
    expect(await peer.queue(key)).toMatchObject([{ key: next.key, revision: next.token }]);
  });

  test('can be acquired again after a loss that nobody released', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    await using lock = new LeaseLock(peer.etcd, key, { ttl: 2 });
    const first = await lock.acquire();
    const lost = new Promise((resolve) => lock.signal.addEventListener('abort', resolve));
    await peer.etcd.leaseClient.leaseRevoke({
      ID: String((await peer.queue(key))[0]?.lease),
    });
    await lost;
    expect(await lock.acquire()).toBeGreaterThan(first);
    expect(lock.signal.aborted).toBe(false);
  });

  test('its signal is aborted while it is not held', async () => {
    await using peer = await Peer.connect(endpoints);
    const lock = new LeaseLock(peer.etcd, newKey());
    expect(lock.signal.reason).toBeInstanceOf(NotLocked);
    await lock.acquire();
    const { signal } = lock;
    expect(signal.aborted).toBe(false);
    await lock.release();
    expect(signal.aborted).toBe(true);
    expect(lock.signal.reason).toBeInstanceOf(NotLocked);
  });

  test('a heartbeat that gets no answer loses the lock by the deadline', async () => {
    await using proxy = await startProxy(endpoints[0] ?? '');
    await using peer = await Peer.connect([proxy.endpoint]);
    const lock = new LeaseLock(peer.etcd, newKey(), { ttl: 2 });
    await lock.acquire();
    const start = performance.now();
    const lost = new Promise((resolve) => lock.signal.addEventListener('abort', resolve));
    proxy.swallow();
    await lost;
    expect(performance.now() - start).toBeLessThan(2000 + 500);
    expect(lock.isLocked).toBe(false);
    proxy.pass();
    await expect(lock.release()).rejects.toThrow(LockLost);
  });

  test('says Unreachable when etcd is silent, which is no conflict', async () => {
    await using proxy = await startProxy(endpoints[0] ?? '');
    await using peer = await Peer.connect([proxy.endpoint]);
    const lock = new LeaseLock(peer.etcd, newKey());
    proxy.swallow();
    await expect(lock.acquire({ timeout: 300 })).rejects.toThrow(Unreachable);
    expect(lock.isLocked).toBe(false);
    proxy.pass();
    await lock.acquire();
    await lock.release();
  });

  test('a TTL that is no whole number is a RangeError', async () => {
    await using peer = await Peer.connect(endpoints);
    await expect(new LeaseLock(peer.etcd, newKey(), { ttl: 1.5 }).acquire()).rejects.toThrow(
      RangeError,
    );
  });

  test('one that is disposed of while it acquires does not hold it afterwards', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newKey();
    const lock = new LeaseLock(peer.etcd, key);
    const acquiring = lock.acquire();
    const ended = expect(acquiring).rejects.toThrow(NotLocked);
    await lock[Symbol.asyncDispose]();
    await ended;
    expect(lock.isLocked).toBe(false);
    await vi.waitFor(async () => expect(await peer.queue(key)).toEqual([]), { timeout: 5000 });
  });

  test('one time limit is for all of it, also after a loss that etcd cannot be told of', async () => {
    await using proxy = await startProxy(endpoints[0] ?? '');
    await using peer = await Peer.connect([proxy.endpoint]);
    const lock = new LeaseLock(peer.etcd, newKey(), { ttl: 20 });
    await lock.acquire();
    const lost = new Promise((resolve) => lock.signal.addEventListener('abort', resolve));
    await using healthy = await Peer.connect(endpoints);
    const [{ lease } = { lease: 0n }] = await healthy.queue(lock.key);
    await healthy.etcd.leaseClient.leaseRevoke({ ID: String(lease) });
    await lost;
    proxy.swallow();
    const start = performance.now();
    await expect(lock.acquire({ timeout: 500 })).rejects.toThrow(Unreachable);
    expect(performance.now() - start).toBeLessThan(2000);
    proxy.pass();
  });
});
