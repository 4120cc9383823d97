// The process that memory.ts looks into: `waiters` has that many sessions wait for one lock, `cycles`
// takes and leaves a lock that many times. Prints the size of the heap in KiB at every stage.

import { setTimeout as sleep } from 'node:timers/promises';
import { connect, Mutex, Session } from '../../client/concurrency/index.js';
import { until } from './until.js';

const [what, number = '', endpoints = ''] = process.argv.slice(2);
const count = Number(number);
const etcd = await connect({ endpoints: endpoints.split(',') });
const session = await Session.create(etcd, { ttl: 60 });
const mutex = new Mutex(session, '/memory');
await (what === 'waiters' ? waiters() : cycles());
process.exit(0);

async function waiters(): Promise<void> {
  await mutex.lock();
  // What comes with the first of them is not theirs.
  await wait(10);
  await report();
  for (const _ of ['half', 'all']) {
    await wait(count / 2);
    await report();
  }
}

/** So many more, each of which waits in the queue by now. */
async function wait(more: number): Promise<void> {
  const before = await queued();
  for (let i = 0; i < more; i++) {
    const own = await Session.create(etcd, { ttl: 60 });
    new Mutex(own, '/memory').lock().catch(fail);
  }
  await until(`${before + more} keys in the queue`, async () => (await queued()) >= before + more);
}

async function queued(): Promise<number> {
  return await etcd.getAll().prefix('/memory/').count();
}

async function cycles(): Promise<void> {
  // Until everything has been compiled and every cache is full the heap grows anyway.
  await cycle(15_000);
  await report();
  await cycle(count);
  await report();
}

async function cycle(times: number): Promise<void> {
  for (let i = 0; i < times; i++) {
    await mutex.lock();
    if (mutex.token <= 0n) throw new Error(`expected a token, got ${mutex.token}`);
    await mutex.unlock();
  }
}

async function report(): Promise<void> {
  // More than once, apart: what ends with a callback is only let go after it.
  for (let i = 0; i < 3; i++) {
    await sleep(100);
    globalThis.gc?.();
  }
  console.log(process.memoryUsage().heapUsed / 1024);
}

function fail(error: unknown): never {
  console.error(error);
  process.exit(1);
}
