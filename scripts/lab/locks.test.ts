// What the lab takes for granted of each lock; what they are worth it finds out itself.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { expect, inject, onTestFinished, test } from 'vitest';
import { runEtcdctl } from '../lib/etcd.js';
import { type Lock, type LockName, locks } from './locks.js';
import { hasRedis, type Redis, startRedis } from './redis.js';

const endpoints = inject('etcd');
/** Those that can be had here; that something is left out, redis.test.ts reports. */
const names = (Object.keys(locks) as LockName[]).filter(
  (name) => locks[name].servers === 0 || hasRedis(),
);

type Place = {
  open(): Promise<Lock>;
  takeAway(key: string | undefined): Promise<unknown>;
  isHeld(): Promise<boolean>;
};

/** Where locks of one name are, and how they are taken from their holders without asking them. */
async function place(kind: LockName): Promise<Place> {
  const name = `/locks.test/${randomUUID()}`;
  const redis = await servers(locks[kind].servers);
  return {
    async open() {
      const lock = await locks[kind].open({
        name,
        ttl: 2,
        endpoints,
        redis: redis?.endpoints ?? [],
      });
      onTestFinished(() => lock[Symbol.asyncDispose]());
      return lock;
    },
    takeAway: async (key = '') =>
      redis ? redis.forget(name) : etcdctl('lease', 'revoke', key.split('/').at(-1) ?? ''),
    isHeld: async () =>
      redis
        ? (await redis.holder(name)) !== undefined
        : (await etcdctl('get', '--prefix', '--keys-only', name)) !== '',
  };
}

async function servers(count: number): Promise<Redis | undefined> {
  if (count === 0) return undefined;
  const redis = await startRedis(count);
  onTestFinished(() => redis[Symbol.asyncDispose]());
  return redis;
}

function etcdctl(...args: string[]): Promise<string> {
  return runEtcdctl(['--endpoints', endpoints.join(), ...args]);
}

test.each(names)('%s: who comes second gets it when the first has released it', async (kind) => {
  const { open, isHeld } = await place(kind);
  const [a, b] = [await open(), await open()];
  // Connected from here on.
  await b.acquire();
  await b.release();
  const first = await a.acquire();
  let released = false;
  const second = b.acquire().then((grant) => ({ grant, late: released }));
  // It has been asked for, and been denied, when these are answered.
  for (let i = 0; i < 10; i++) expect(await isHeld()).toBe(true);
  released = true;
  await a.release();
  const { grant, late } = await second;
  expect(late).toBe(true);
  expect(grant.key).not.toBe(first.key);
  await b.release();
  expect(await isHeld()).toBe(false);
});

test.each(names.filter((name) => locks[name].tells))(
  '%s: the holder is told that it was taken from it',
  async (kind) => {
    const { open, takeAway } = await place(kind);
    const { key, lost } = await (await open()).acquire();
    if (!lost) throw new Error('expected to be told of the loss');
    await Promise.all([once(lost, 'abort'), takeAway(key)]);
    expect(lost.reason).toHaveProperty('reason');
  },
);

test.each(names)('%s: a late release and the lock of another', async (kind) => {
  const { open, takeAway, isHeld } = await place(kind);
  const [a, b] = [await open(), await open()];
  const { key } = await a.acquire();
  await takeAway(key);
  await b.acquire();
  await a.release();
  // A plain DEL does not ask whose it is.
  expect(await isHeld()).toBe(kind !== 'redis-del');
});

test.each(names)('%s: a token that grows with each holder, or none at all', async (kind) => {
  const { open } = await place(kind);
  const tokens: (bigint | undefined)[] = [];
  for (const lock of [await open(), await open()]) {
    tokens.push((await lock.acquire()).token);
    await lock.release();
  }
  const [one, two] = tokens;
  if (locks[kind].fencing) expect(two).toBeGreaterThan(one ?? 0n);
  else expect(tokens).toEqual([undefined, undefined]);
});
