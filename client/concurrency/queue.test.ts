// Order among many: first come, first served by create revision, never two at a time, whoever
// gives up or dies meanwhile. The order is what a watch on etcd saw, not what we remember.

import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, inject, test } from 'vitest';
import { startEtcd } from '../../scripts/lib/etcd.js';
import { Peer } from '../../scripts/lib/peer.js';
import type { Mutex } from './mutex.js';

const endpoints = inject('etcd');

let names = 0;
function newName(): string {
  return `/queue-test/${process.pid}/${++names}`;
}

/** The create revisions of all keys that ever were in a queue, oldest first, and who is in it. */
async function observe(peer: Peer, name: string) {
  const joined: bigint[] = [];
  const watcher = await peer.etcd.watch().prefix(`${name}/`).create();
  watcher.on('put', (kv) => joined.push(BigInt(kv.create_revision)));
  return {
    joined,
    /** Resolves when all events up to now have been seen. */
    async settled(count: number): Promise<void> {
      while (joined.length < count) await new Promise(setImmediate);
      await watcher.cancel();
    },
  };
}

/** Counts who is inside, and what they had for tokens, in the order in which they came in. */
class Room {
  readonly tokens: bigint[] = [];
  readonly leases: bigint[] = [];
  #inside = 0;

  async visit(mutex: Mutex): Promise<void> {
    await mutex.lock();
    expect(++this.#inside).toBe(1);
    this.tokens.push(mutex.token);
    this.leases.push(mutex.session.leaseId);
    await new Promise(setImmediate);
    mutex.assertHeld();
    this.#inside--;
    await mutex.unlock();
  }
}

function ascending(numbers: readonly bigint[]): bigint[] {
  return [...numbers].sort((a, b) => (a < b ? -1 : 1));
}

describe.concurrent('contenders', () => {
  test.each([
    [10, 10],
    [50, 5],
  ])(
    '%i of them on %i connections: all are served, in the order in which they came, one at a time',
    async (count, connections) => {
      await using observer = await Peer.connect(endpoints);
      const name = newName();
      const order = await observe(observer, name);
      const room = new Room();
      await Promise.all(
        Array.from({ length: connections }, async () => {
          await using peer = await Peer.connect(endpoints);
          const contenders = Array.from({ length: count / connections }, async () =>
            room.visit(await peer.mutex(name)),
          );
          await Promise.all(contenders);
        }),
      );
      await order.settled(count);
      expect(room.tokens).toEqual(order.joined);
      expect(room.tokens).toEqual(ascending(room.tokens));
      expect(new Set(room.tokens).size).toBe(count);
      expect(await observer.queue(name)).toEqual([]);
    },
  );

  test('a waiter that dies does not let in those behind it', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b, c] = [await peer.mutex(name), await peer.mutex(name), await peer.mutex(name)];
    await a.lock();
    const dying = b.lock();
    await peer.untilQueued(name, 2);
    let released = false;
    const waiting = c.lock().then(() => expect(released).toBe(true));
    await peer.untilQueued(name, 3);
    await peer.revoke(b.session);
    await expect(dying).rejects.toMatchObject({ code: 'SESSION_EXPIRED' });
    await sleep(200);
    released = true;
    await a.unlock();
    await waiting;
    expect(await peer.queue(name)).toMatchObject([{ key: c.key }]);
  });

  test.each([
    [2, 3, 4],
    [4, 2, 3],
    [3, 4, 2],
  ])(
    'of five waiters the middle ones die, as %i, %i, %i: the others are served in order',
    async (...dying) => {
      await using peer = await Peer.connect(endpoints);
      const name = newName();
      const mutexes = await Promise.all(Array.from({ length: 6 }, () => peer.mutex(name)));
      const served: number[] = [];
      const waits: Promise<void>[] = [];
      for (const [i, mutex] of mutexes.entries()) {
        const wait = mutex.lock().then(() => void served.push(i));
        waits.push(wait);
        wait.catch(() => {});
        await peer.untilQueued(name, i + 1);
      }
      for (const i of dying) {
        const { session } = mutexes[i] as Mutex;
        await peer.revoke(session);
        await expect(waits[i]).rejects.toMatchObject({ code: 'SESSION_EXPIRED' });
      }
      await sleep(100);
      expect(served).toEqual([0]);
      for (const i of [0, 1, 5]) {
        await waits[i];
        expect(served.at(-1)).toBe(i);
        await mutexes[i]?.unlock();
      }
      expect(served).toEqual([0, 1, 5]);
    },
  );

  test('an abort that races with the grant ends in held with the key, or rejected without', async () => {
    await using peer = await Peer.connect(endpoints);
    const outcomes = { held: 0, rejected: 0 };
    await Promise.all(
      Array.from({ length: 5 }, async () => {
        const name = newName();
        const [a, b] = [await peer.mutex(name), await peer.mutex(name)];
        // Follows how long a grant takes on this machine, so that it is as often early as late.
        let latest = 20;
        for (let round = 0; round < 60; round++) {
          await a.lock();
          const controller = new AbortController();
          const waiting = b.lock({ signal: controller.signal });
          await peer.untilQueued(name, 2);
          const releasing = a.unlock();
          await sleep(Math.random() * latest);
          controller.abort(new Error('abort'));
          const outcome = await waiting.then(
            () => 'held' as const,
            (error: Error) => {
              expect(error.message).toBe('abort');
              return 'rejected' as const;
            },
          );
          outcomes[outcome]++;
          latest *= outcome === 'held' ? 0.9 : 1.1;
          await releasing;
          const queue = await peer.queue(name);
          if (outcome === 'held') {
            expect(queue).toMatchObject([{ key: b.key, revision: b.token }]);
            await b.unlock();
          } else {
            expect(queue).toEqual([]);
            expect(b.token).toBe(0n);
          }
        }
      }),
    );
    expect(outcomes.held + outcomes.rejected).toBe(300);
    // Both must have happened, or the race was none.
    expect(Math.min(outcomes.held, outcomes.rejected)).toBeGreaterThan(50);
  });

  test('waits that timed out are not in the way of one that comes later', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const holder = await peer.mutex(name);
    await holder.lock();
    await Promise.all(
      Array.from({ length: 20 }, async () => {
        const mutex = await peer.mutex(name);
        // The latter where etcd is too busy to answer within that time.
        const code = expect.stringMatching(/^(TIMEOUT|UNREACHABLE)$/);
        await expect(mutex.lock({ timeout: 200 })).rejects.toMatchObject({ code });
      }),
    );
    await holder.unlock();
    await (await peer.mutex(name)).tryLock();
  });
});

test('tokens grow over 200 hand-overs among five sessions on three members, where lease IDs do not', async () => {
  await using etcd = await startEtcd({ members: 3 });
  const room = new Room();
  await Promise.all(
    Array.from({ length: 5 }, async (_, i) => {
      await using peer = await Peer.connect([etcd.endpoints[i % 3] ?? '']);
      const mutex = await peer.mutex('handover');
      for (let round = 0; round < 40; round++) await room.visit(mutex);
    }),
  );
  expect(room.tokens).toHaveLength(200);
  expect(room.tokens).toEqual(ascending(room.tokens));
  expect(new Set(room.tokens).size).toBe(200);
  expect(room.leases).not.toEqual(ascending(room.leases));
  expect(new Set(room.leases).size).toBe(5);
});
