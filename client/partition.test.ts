// Client 1 is cut off from etcd, and from nothing else: it goes on to write to storage. No lock can
// prevent that; what can is the check at storage.

import { randomUUID } from 'node:crypto';
import { expect, inject, test } from 'vitest';
import { type Program, startClient, startStorage } from '../scripts/lib/program.js';
import { startProxy } from '../scripts/lib/proxy.js';

const endpoints = inject('etcd');

test.concurrent('the successor writes first: the write of the one cut off is refused', async () => {
  await using cut = await cutOff();
  const { one, startTwo } = cut;
  await using two = startTwo();
  await two.line('successfully write a key to storage');
  one.write('x');
  await one.line('expected fail to write to storage with old lease version');
  expect((await one.exited).code).toBe(0);
});

test.concurrent('the one cut off writes first: upstream’s rule lets it, and then shuts the successor out', async () => {
  await using cut = await cutOff();
  const { one, startTwo } = cut;
  // Its lease has run out when somebody else has the lock.
  await using other = startTwo(1);
  await other.line('hit any key');
  one.write('x');
  await one.line('successfully write a key to storage');
  other.write('x');
  await other.line('expected fail to write to storage');
});

/** Client 1 holds the lock, and then nothing passes between it and etcd any more. */
async function cutOff() {
  const storage = await startStorage();
  const proxy = await startProxy(endpoints[0] ?? '');
  const lock = `/partition-test/${randomUUID()}`;
  const start = (mode: 1 | 2, etcd: readonly string[]): Program =>
    startClient(mode, ['--endpoints', etcd.join(','), '--storage', storage.url, '--lock', lock]);
  const one = start(1, [proxy.endpoint]);
  await one.line('hit any key');
  proxy.swallow();
  return {
    one,
    /** A successor with a good connection. */
    startTwo: (mode: 1 | 2 = 2) => start(mode, endpoints),
    async [Symbol.asyncDispose]() {
      for (const each of [one, proxy, storage]) await each[Symbol.asyncDispose]();
    },
  };
}
