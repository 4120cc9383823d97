// Workers that take turns for minutes, under faults from a seeded schedule: the same seed does the same
// things to the same workers, though not at the very same moments. The history is judged at the end.

import { setTimeout as sleep } from 'node:timers/promises';
import { generator } from '../lib/random.js';
import type { Actor } from './actor.js';
import type { Of } from './decisions.js';
import type { Stage } from './stage.js';
import type { StoreKind } from './storage.js';

export type SoakOptions = {
  minutes: number;
  seed: number;
  /** Of storage: some faults are not for all of them. */
  store: StoreKind;
  /** Ends the soak before its time; what happened until then is judged. */
  signal: AbortSignal;
};

const WORKERS = 4;
/** Milliseconds at most that a worker takes between its read and its write. */
const THINK = 300;

export async function soak(stage: Stage, options: SoakOptions): Promise<void> {
  const { minutes, seed, store, signal } = options;
  const random = generator(seed);
  const faults = FAULTS.filter(({ not }) => !not?.includes(store));
  const names = Array.from({ length: WORKERS }, (_, i) => String.fromCharCode(65 + i));
  const workers = await Promise.all(names.map((name) => stage.worker(name)));
  for (const worker of workers) worker.tell(`work ${THINK}`);
  const end = performance.now() + minutes * 60_000;
  for (let round = 2; performance.now() < end && !signal.aborted; round++) {
    const i = random(WORKERS);
    const worker = workers[i];
    const fault = faults[random(faults.length)];
    if (!worker || !fault) continue;
    // Only who holds the lock can lose it.
    const held = await worker.holdsNext();
    await sleep(random(THINK));
    const replace = () => stage.worker(`${names[i]}${round}`);
    workers[i] = (await fault.strike({ stage, worker, held, replace })) ?? worker;
  }
  for (const worker of workers) await worker.kill();
}

type Victim = {
  stage: Stage;
  worker: Actor;
  held: Of<'holds'>;
  /** Another worker in its place. */
  replace: () => Promise<Actor>;
};

type Fault = {
  /** Resolves when it is over, with the worker that goes on if it is another. */
  strike: (victim: Victim) => Promise<Actor | undefined>;
  /** The stores that it is not for. */
  not?: readonly StoreKind[];
};

const FAULTS: readonly Fault[] = [
  {
    async strike({ worker, held }) {
      worker.pause();
      await worker.leaves(held);
      worker.resume();
    },
  },
  {
    async strike({ worker, held }) {
      worker.cutOff();
      await worker.leaves(held);
      worker.reconnect();
    },
  },
  {
    async strike({ worker, held }) {
      await worker.revoke(held);
    },
  },
  {
    async strike({ worker, held }) {
      worker.tell('block 4500');
      await worker.leaves(held);
    },
  },
  {
    async strike({ worker, held, replace }) {
      await worker.kill();
      await worker.leaves(held);
      const next = await replace();
      next.tell(`work ${THINK}`);
      return next;
    },
  },
  {
    // What it sends to storage is on the way until the lock was taken from it.
    async strike({ worker, held }) {
      const letGo = worker.holdBack();
      await worker.revoke(held);
      await worker.leaves(held);
      letGo();
    },
  },
  {
    async strike({ stage }) {
      await stage.restartStorage({ gently: true });
    },
    // It would forget the counter.
    not: ['memory'],
  },
  {
    async strike({ stage }) {
      const restart = await stage.killLeader();
      await restart();
    },
    // A write that was not answered may have happened, and only storage could tell.
    not: ['etcd'],
  },
  {
    async strike({ stage }) {
      const thaw = await stage.freezeLeader();
      await sleep(FREEZE);
      thaw();
    },
    not: ['etcd'],
  },
];

/** Milliseconds: about as long as a lease lives. */
const FREEZE = 2000;
