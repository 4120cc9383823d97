// Workers that take turns for minutes, under faults from a seeded schedule: the same seed does the same
// things to the same workers, though not at the very same moments. The history is judged at the end.

import { setTimeout as sleep } from 'node:timers/promises';
import { generator } from '../lib/random.js';
import type { Of } from './decisions.js';
import type { Actor, Stage } from './stage.js';

export type SoakOptions = {
  minutes: number;
  seed: number;
  /** Ends the soak before its time; what happened until then is judged. */
  signal: AbortSignal;
};

const WORKERS = 4;
/** Milliseconds at most that a worker takes between its read and its write. */
const THINK = 300;

export async function soak(stage: Stage, { minutes, seed, signal }: SoakOptions): Promise<void> {
  const random = generator(seed);
  const names = Array.from({ length: WORKERS }, (_, i) => String.fromCharCode(65 + i));
  const workers = await Promise.all(names.map((name) => stage.worker(name)));
  for (const worker of workers) worker.tell(`work ${THINK}`);
  const end = performance.now() + minutes * 60_000;
  for (let round = 2; performance.now() < end && !signal.aborted; round++) {
    const i = random(WORKERS);
    const worker = workers[i];
    const fault = FAULTS[random(FAULTS.length)];
    if (!worker || !fault) continue;
    // Only who holds the lock can lose it.
    const held = await worker.holdsNext();
    await sleep(random(THINK));
    workers[i] = await fault(worker, held, () => stage.worker(`${names[i]}${round}`));
  }
  for (const worker of workers) await worker.kill();
}

type Fault = (worker: Actor, held: Of<'holds'>, replace: () => Promise<Actor>) => Promise<Actor>;

const FAULTS: Fault[] = [
  async (worker, held) => {
    worker.pause();
    await worker.leaves(held);
    worker.resume();
    return worker;
  },
  async (worker, held) => {
    worker.cutOff();
    await worker.leaves(held);
    worker.reconnect();
    return worker;
  },
  async (worker, held) => {
    await worker.revoke(held);
    return worker;
  },
  async (worker, held) => {
    worker.block(4500);
    await worker.leaves(held);
    return worker;
  },
  async (worker, held, replace) => {
    await worker.kill();
    await worker.leaves(held);
    const next = await replace();
    next.tell(`work ${THINK}`);
    return next;
  },
];
