// What a mutex promises to the one who uses it, on a healthy etcd. Order among many is in
// queue.test.ts, what the network may do to it in faults.test.ts.

import { randomUUID } from 'node:crypto';
import { type EventEmitter, getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, inject, test, vi } from 'vitest';
import { etcdctl } from '../../scripts/lib/etcd.js';
import { Peer } from '../../scripts/lib/peer.js';
import { Program } from '../../scripts/lib/program.js';
import { Locked, LockReleased, SessionExpired, Timeout } from './errors.js';
import { Locker, Mutex } from './mutex.js';
import { Watches } from './watch.js';

const endpoints = inject('etcd');

function newName(): string {
  return `/mutex-test/${randomUUID()}`;
}

describe.concurrent('a mutex', () => {
  test('its key is the name and the lease in hex, empty, of the lease; its token the create revision', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const mutex = await peer.mutex(name);
    const { leaseId } = mutex.session;
    expect(mutex.key).toBe(`${name}/${leaseId.toString(16)}`);
    expect(mutex.token).toBe(0n);
    await mutex.lock();
    expect(mutex.token).toBeGreaterThan(0n);
    expect(await peer.queue(name)).toEqual([
      { key: mutex.key, value: '', lease: leaseId, revision: mutex.token },
    ]);
    await mutex.unlock();
    expect(mutex.token).toBe(0n);
    expect(await peer.queue(name)).toEqual([]);
  });

  test('the token grows from holder to holder', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const mutexes = [await peer.mutex(name), await peer.mutex(name)];
    let last = 0n;
    for (const mutex of [...mutexes, ...mutexes]) {
      await mutex.lock();
      expect(mutex.token).toBeGreaterThan(last);
      last = mutex.token;
      await mutex.unlock();
    }
  });

  test('a lock that is free costs one call, an unlock another', async () => {
    await using peer = await Peer.connect(endpoints);
    const mutex = await peer.mutex(newName());
    const { kv, watchClient } = peer.etcd;
    const spies = [vi.spyOn(kv, 'txn'), vi.spyOn(kv, 'range'), vi.spyOn(watchClient, 'watch')];
    const calls = () => spies.map((spy) => spy.mock.calls.length);
    await mutex.lock();
    expect(calls()).toEqual([1, 0, 0]);
    await mutex.unlock();
    expect(calls()).toEqual([2, 0, 0]);
  });

  test('to wait behind any number costs a look once it watches, and one when its turn comes', async () => {
    await using peer = await Peer.connect(endpoints);
    await using other = await Peer.connect(endpoints);
    const name = newName();
    const [first, second] = [await peer.mutex(name), await peer.mutex(name)];
    await first.lock();
    const waiting = second.lock();
    await peer.untilQueued(name, 2);
    const third = await other.mutex(name);
    const txn = vi.spyOn(other.etcd.kv, 'txn');
    const last = third.lock();
    await vi.waitFor(() => expect(txn).toHaveBeenCalledTimes(2));
    await txn.mock.results[1]?.value;
    await first.unlock();
    await waiting;
    expect(txn).toHaveBeenCalledTimes(2);
    await second.unlock();
    await last;
    expect(txn).toHaveBeenCalledTimes(3);
  });

  test('only who is next looks again by itself while etcd may have set its watch aside', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [first, next, last] = await Promise.all([1, 2, 3].map(() => peer.mutex(name)));
    await first?.lock();
    // What can be seen of it from here: the watch is confirmed, and its event does not come.
    const silent = { confirmed: Promise.resolve(), changed: new Promise<void>(() => {}) };
    const add = vi.spyOn(Watches.of(peer.etcd), 'add');
    add.mockReturnValue({ ...silent, [Symbol.dispose]: () => {} });
    const txn = vi.spyOn(peer.etcd.kv, 'txn');
    const calls = (count: number) =>
      vi.waitFor(() => expect(txn).toHaveBeenCalledTimes(count), { timeout: 10_000 });
    const stop = new AbortController();
    const { signal } = stop;
    // It joins, looks, and looks again five times.
    const waiting = [next?.lock({ signal })];
    await calls(7);
    waiting.push(last?.lock({ signal }));
    await calls(9);
    stop.abort();
    for (const { status } of await Promise.allSettled(waiting)) expect(status).toBe('rejected');
  });

  test.each([
    ['before it is confirmed', 1],
    ['during its first look', 2],
  ])('who is next and whose watch breaks %s watches anew after %i looks', async (_when, looks) => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [holder, next] = [await peer.mutex(name), await peer.mutex(name)];
    await holder.lock();
    const watches = Watches.of(peer.etcd);
    const { kv, watchClient } = peer.etcd;
    const [add, txn, open] = [watches.add, kv.txn, watchClient.watch];
    let breakStream: (() => void) | undefined;
    vi.spyOn(watchClient, 'watch').mockImplementationOnce(async () => {
      if (looks === 1) throw new Error('no stream');
      const stream = await open.call(watchClient);
      breakStream = () => (stream as unknown as EventEmitter).emit('end');
      return stream;
    });
    const steps: string[] = [];
    const again = new Promise<void>((resolve) => {
      vi.spyOn(watches, 'add').mockImplementation((...args) => {
        if (steps.includes('look')) resolve();
        steps.push('watch');
        return add.apply(watches, args);
      });
    });
    vi.spyOn(kv, 'txn').mockImplementation((...args) => {
      // Not the one that joins.
      if (steps.length > 0) steps.push('look');
      breakStream?.();
      return txn.apply(kv, args);
    });
    const waiting = next.lock();
    await again;
    const seen = [...steps];
    await holder.unlock();
    await waiting;
    expect(seen).toEqual(['watch', 'watch', ...Array(looks).fill('look'), 'watch', 'watch']);
  });

  test('a waiter gets the lock when its holder unlocks, and not before', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    let released = false;
    const waiting = b.lock().then(() => expect(released).toBe(true));
    await peer.untilQueued(name, 2);
    await sleep(100);
    released = true;
    await a.unlock();
    await waiting;
    expect(await peer.queue(name)).toMatchObject([{ key: b.key, revision: b.token }]);
  });

  test('keys that only share the beginning of the name are no part of the queue', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    await peer.etcd.put(`${name}x/1`).value('');
    await peer.etcd.put(`${name}0`).value('');
    await peer.etcd.put(name).value('');
    await (await peer.mutex(name)).tryLock();
  });

  test('tryLock is refused as Locked while another has the lock, and leaves no key', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.tryLock();
    await expect(b.tryLock()).rejects.toBeInstanceOf(Locked);
    await expect(b.tryLock()).rejects.toMatchObject({ name: 'Locked', code: 'LOCKED' });
    expect(await peer.queue(name)).toMatchObject([{ key: a.key, revision: a.token }]);
    await a.unlock();
    await b.tryLock();
    expect(await peer.queue(name)).toMatchObject([{ key: b.key, revision: b.token }]);
  });

  test('unlock without a lock is refused and changes nothing', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    await expect(b.unlock()).rejects.toBeInstanceOf(LockReleased);
    const twin = new Mutex(a.session, name);
    await expect(twin.unlock()).rejects.toMatchObject({ code: 'LOCK_RELEASED' });
    expect(await peer.queue(name)).toMatchObject([{ revision: a.token }]);
    await a.unlock();
    await expect(a.unlock()).rejects.toBeInstanceOf(LockReleased);
  });

  test('a time limit that is none is refused, and the lock is kept', async () => {
    await using peer = await Peer.connect(endpoints);
    const mutex = await peer.mutex(newName());
    await expect(mutex.lock({ timeout: -1 })).rejects.toThrow(RangeError);
    expect(await peer.queue(mutex.name)).toEqual([]);
    await mutex.lock();
    await expect(mutex.unlock({ timeout: Number.NaN })).rejects.toThrow(RangeError);
    expect(await mutex.unlock()).toBe(true);
  });

  test('two objects of one session share the lock: one token, and the last unlock frees it', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const a = await peer.mutex(name);
    const b = new Mutex(a.session, name);
    await a.lock();
    await b.lock();
    await a.lock();
    expect(b.token).toBe(a.token);
    await a.unlock();
    expect(await peer.queue(name)).toMatchObject([{ revision: b.token }]);
    b.assertHeld();
    await b.unlock();
    expect(await peer.queue(name)).toEqual([]);
  });

  test('one session that locks the same name many times at once gets one token', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const a = await peer.mutex(name);
    const b = new Mutex(a.session, name);
    await Promise.all([a, b, a, b, a].map((mutex) => mutex.lock()));
    expect(await peer.queue(name)).toMatchObject([{ revision: a.token }]);
    expect(b.token).toBe(a.token);
    await b.unlock();
    expect(await peer.queue(name)).toHaveLength(1);
    await a.unlock();
    expect(await peer.queue(name)).toEqual([]);
  });

  test.each([
    ['request', 'of another object'],
    ['answer', 'of another object'],
    ['request', 'of the same object'],
    ['answer', 'of the same object'],
  ])(
    'an unlock soon after the %s to a lock %s in the session does not take its key away',
    async (when, who) => {
      await using peer = await Peer.connect(endpoints);
      const name = newName();
      const a = await peer.mutex(name);
      const b = who === 'of the same object' ? a : new Mutex(a.session, name);
      const { kv } = peer.etcd;
      const txn = kv.txn.bind(kv);
      for (let ticks = 0; ticks < (when === 'request' ? 4 : 30); ticks++) {
        await a.lock();
        let unlocking: Promise<unknown> | undefined;
        const unlockSoon = async () => {
          for (let tick = 0; tick < ticks; tick++) await Promise.resolve();
          await a.unlock();
        };
        vi.spyOn(kv, 'txn').mockImplementationOnce(async (...args) => {
          if (when === 'request') unlocking = unlockSoon();
          const answer = await txn(...args);
          if (when === 'answer') unlocking = unlockSoon();
          return answer;
        });
        await b.lock();
        await unlocking;
        const queue = await peer.queue(name);
        // On one object an unlock after the second lock is done is meant for that one.
        if (b.token === 0n) expect(queue).toEqual([]);
        else expect(queue).toMatchObject([{ revision: b.token }]);
        if (b.token !== 0n) await b.unlock();
        expect(await peer.queue(name)).toEqual([]);
      }
    },
  );

  test('a late unlock does not free what the session has locked anew', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const old = await peer.mutex(name);
    await old.lock();
    const unlocking = old.unlock();
    const young = new Mutex(old.session, name);
    await young.lock();
    await unlocking;
    await expect(old.unlock()).rejects.toBeInstanceOf(LockReleased);
    expect(await peer.queue(name)).toMatchObject([{ revision: young.token }]);
  });

  test('unlock tells whether the lock was held until then', async () => {
    await using peer = await Peer.connect(endpoints);
    const mutex = await peer.mutex(newName());
    await mutex.lock();
    expect(await mutex.unlock()).toBe(true);
    await mutex.lock();
    await peer.etcd.delete().key(mutex.key);
    expect(await mutex.unlock()).toBe(false);
    await mutex.lock();
    await peer.revoke(mutex.session);
    expect(await mutex.unlock()).toBe(false);
  });

  test('isOwner makes a transaction depend on the lock', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    const owns = async (mutex: Mutex) =>
      (await peer.etcd.kv.txn({ compare: [mutex.isOwner()] })).succeeded;
    expect(await owns(a)).toBe(false);
    await a.lock();
    expect(await owns(a)).toBe(true);
    expect(await owns(b)).toBe(false);
    const stale = a.isOwner();
    await a.unlock();
    expect(await owns(a)).toBe(false);
    await a.lock();
    expect((await peer.etcd.kv.txn({ compare: [stale] })).succeeded).toBe(false);
    await peer.revoke(a.session);
    expect(await owns(a)).toBe(false);
  });

  test('assertHeld throws what has ended the lock', async () => {
    await using peer = await Peer.connect(endpoints);
    const mutex = await peer.mutex(newName());
    expect(() => mutex.assertHeld()).toThrow(LockReleased);
    await mutex.lock();
    mutex.assertHeld();
    await mutex.unlock();
    expect(() => mutex.assertHeld()).toThrow(LockReleased);
    await mutex.lock();
    await mutex.session.close();
    expect(() => mutex.assertHeld()).toThrow(mutex.session.signal.reason);
  });

  test('a lock does not outlive its session, and cannot be taken in one that is over', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    await a.session.close();
    await b.tryLock();
    await expect(a.lock()).rejects.toMatchObject({ code: 'SESSION_EXPIRED', reason: 'closed' });
    await expect(a.tryLock()).rejects.toBeInstanceOf(SessionExpired);
    await a.unlock();
    expect(await peer.queue(name)).toMatchObject([{ key: b.key, revision: b.token }]);
  });

  test('a waiter whose lease is revoked is told so within a second and leaves no key', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    // Renewed every 20 s only: what tells is the queue.
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    const waiting = b.lock();
    await peer.untilQueued(name, 2);
    await sleep(200); // It is no longer about to look, but waits to be told.
    await peer.revoke(b.session);
    const revoked = performance.now();
    await expect(waiting).rejects.toMatchObject({ code: 'SESSION_EXPIRED', reason: 'revoked' });
    expect(performance.now() - revoked).toBeLessThan(1000);
    expect(await peer.queue(name)).toMatchObject([{ key: a.key }]);
  });

  test('a lock on a lease that is gone is refused as SessionExpired', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const mutex = await peer.mutex(name);
    await peer.revoke(mutex.session);
    await expect(mutex.lock()).rejects.toMatchObject({ reason: 'revoked' });
    await expect(mutex.tryLock()).rejects.toMatchObject({ reason: 'revoked' });
    expect(await peer.queue(name)).toEqual([]);
  });

  test('a wait ends with the time limit or with the reason of the signal, and leaves no key', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    await expect(b.lock({ timeout: 50 })).rejects.toEqual(new Timeout(50));
    expect(await peer.queue(name)).toHaveLength(1);
    const controller = new AbortController();
    const waiting = b.lock({ signal: controller.signal });
    await peer.untilQueued(name, 2);
    const reason = new Error('changed my mind');
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    expect(await peer.queue(name)).toHaveLength(1);
    await expect(b.lock({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(await peer.queue(name)).toHaveLength(1);
  });

  test('a wait that is given up does not disturb another one of the same session', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    const twin = new Mutex(b.session, name);
    const controller = new AbortController();
    const givenUp = b.lock({ signal: controller.signal });
    const kept = twin.lock();
    await peer.untilQueued(name, 2);
    controller.abort();
    await expect(givenUp).rejects.toThrow();
    await a.unlock();
    await kept;
    expect(await peer.queue(name)).toMatchObject([{ key: twin.key, revision: twin.token }]);
    expect(() => b.assertHeld()).toThrow(LockReleased);
  });

  test('it leaves no listener on the signal of the session or of the caller', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    const { signal } = new AbortController();
    const count = () =>
      [signal, a.session.signal, b.session.signal].map((s) => getEventListeners(s, 'abort').length);
    const before = count();
    await a.lock({ signal, timeout: 60_000 });
    await expect(b.tryLock({ signal })).rejects.toThrow();
    await expect(b.lock({ signal, timeout: 20 })).rejects.toThrow();
    const waiting = b.lock({ signal });
    await peer.untilQueued(name, 2);
    await a.unlock({ signal });
    await waiting;
    await b.unlock({ signal });
    // A renewal may just have been under way, at either count.
    expect(count()).toEqual(before);
  });

  test('many waits in one session bring no warning of a leak', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const warnings: Error[] = [];
    const warn = (warning: Error) => warnings.push(warning);
    process.on('warning', warn);
    const session = await peer.session();
    const holders = await Promise.all(
      Array.from({ length: 12 }, async (_, i) => {
        const holder = await peer.mutex(`${name}/${i}`);
        await holder.lock();
        return holder;
      }),
    );
    const waits = holders.map((holder) => new Mutex(session, holder.name).lock());
    await Promise.all(holders.map((holder) => peer.untilQueued(holder.name, 2)));
    await Promise.all(holders.map((holder) => holder.unlock()));
    await Promise.all(waits);
    process.off('warning', warn);
    expect(warnings).toEqual([]);
  });

  test('a locker has the two plain verbs', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [new Locker(await peer.session(), name), new Locker(await peer.session(), name)];
    await a.lock();
    const waiting = b.lock();
    await peer.untilQueued(name, 2);
    await a.unlock();
    await waiting;
    await b.unlock();
    await expect(b.unlock()).rejects.toBeInstanceOf(LockReleased);
  });

  test('it queues with etcdctl lock, first come, first served', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const keyOf = async (position: number) => (await peer.queue(name)).at(position)?.key;
    const ctl = () => Program.start(etcdctl, ['--endpoints', endpoints.join(), 'lock', name]);
    const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    await using first = ctl();
    await peer.untilQueued(name, 2);
    const waiting = b.lock().then(() => 'b');
    await peer.untilQueued(name, 3);
    await using second = ctl();
    await peer.untilQueued(name, 4);
    expect(first.stdout + second.stdout).toBe('');

    const firstKey = await keyOf(1);
    await a.unlock();
    expect(await first.line(name)).toBe(firstKey);
    expect(await Promise.race([waiting, sleep(100)])).toBeUndefined();
    first.signal('SIGINT');
    expect(await waiting).toBe('b');
    expect(await peer.queue(name)).toMatchObject([{ key: b.key, revision: b.token }, {}]);
    expect(second.stdout).toBe('');
    const secondKey = await keyOf(1);
    await b.unlock();
    expect(await second.line(name)).toBe(secondKey);
    await expect(a.tryLock()).rejects.toBeInstanceOf(Locked);
  });
});

describe.concurrent('two mutexes of one session', () => {
  test('tryLock answers at once while a lock of the same session waits', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const holder = await peer.mutex(name);
    await holder.lock();
    const session = await peer.session();
    const waiting = new Mutex(session, name).lock();
    // Both while it is about to wait and while it waits.
    await expect(new Mutex(session, name).tryLock()).rejects.toThrow(Locked);
    await peer.untilQueued(name, 2);
    await expect(new Mutex(session, name).tryLock()).rejects.toThrow(Locked);
    expect(await peer.queue(name)).toHaveLength(2);
    await holder.unlock();
    await waiting;
    await new Mutex(session, name).tryLock();
  });

  test('while one waits, tryLock of the other says first what ends it: its signal, its session', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    await (await peer.mutex(name)).lock();
    const session = await peer.session();
    const waiting = new Mutex(session, name).lock();
    await peer.untilQueued(name, 2);
    const signal = AbortSignal.abort('told to');
    await expect(new Mutex(session, name).tryLock({ signal })).rejects.toBe('told to');
    const closed = session.close();
    await expect(new Mutex(session, name).tryLock()).rejects.toThrow(SessionExpired);
    await expect(waiting).rejects.toThrow(SessionExpired);
    await closed;
  });

  test('one that gives up while its request is still under way leaves no key when the other is done', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const session = await peer.session();
    const [holder, other] = [new Mutex(session, name), new Mutex(session, name)];
    await holder.lock();
    // As a member that is slow to take it up: the request gets there only after the unlock began.
    const txn = peer.etcd.kv.txn.bind(peer.etcd.kv);
    let deliver = () => {};
    const delivered = new Promise<void>((resolve) => {
      deliver = resolve;
    });
    vi.spyOn(peer.etcd.kv, 'txn').mockImplementationOnce(async (request) => {
      await delivered;
      return txn(request);
    });
    const controller = new AbortController();
    const locking = other.lock({ signal: controller.signal });
    const rejected = expect(locking).rejects.toBe('enough');
    await vi.waitFor(() => expect(peer.etcd.kv.txn).toHaveBeenCalledTimes(1));
    controller.abort('enough');
    const unlocking = holder.unlock();
    await peer.etcd.delete().key(holder.key);
    deliver();
    await Promise.all([rejected, unlocking]);
    await vi.waitFor(async () => expect(await peer.queue(name)).toEqual([]), { timeout: 5000 });
    expect(session.expired).toBe(false);
  });
});

test('any number of waits may hang on one signal without a warning', async () => {
  await using peer = await Peer.connect(endpoints);
  const warnings: string[] = [];
  const warned = (warning: Error) => void warnings.push(warning.message);
  process.on('warning', warned);
  const name = newName();
  const holder = await peer.mutex(name);
  await holder.lock();
  const controller = new AbortController();
  const mutexes = await Promise.all(Array.from({ length: 15 }, () => peer.mutex(name)));
  const waits = mutexes.map((mutex) => mutex.lock({ signal: controller.signal }));
  const rejected = Promise.all(waits.map((wait) => expect(wait).rejects.toBe('enough')));
  await peer.untilQueued(name, 16);
  controller.abort('enough');
  await rejected;
  process.off('warning', warned);
  expect(warnings).toEqual([]);
  expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
});
