// Every way a lease falsely expires that the lab really does, as a story of two workers, A and B. Each
// reads a counter, adds one and writes it back; A loses the lock between the two, and goes on.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Actor } from './actor.js';
import { libfaketime, MISSING } from './clock.js';
import { type LockName, locks } from './locks.js';
import { type MemberStatus, type Stage, TTL } from './stage.js';
import type { Fence, StoreKind } from './storage.js';
import type { Verdict } from './verdict.js';

export type Cause = {
  /** One line for the list. */
  readonly about: string;
  /** Members of etcd. Default 1. */
  readonly members?: 1 | 3;
  /** The lock that it is played with, unless another is asked for. Default `mutex`. */
  readonly lock?: LockName;
  /** Only these locks know it. Default: all. */
  readonly locks?: readonly LockName[];
  /** Whether the workers' clocks are set: that takes libfaketime. Default: not. */
  readonly clock?: boolean;
  readonly play: (stage: Stage) => Promise<void>;
  /** What has to come of it; what is left out may be either way. */
  readonly expect: (fence: Fence, store: StoreKind) => Partial<Verdict>;
};

/** By name, in the order to read them in. */
export const causes = {
  stale: {
    about: 'no fault at all: A comes back with a token from before B',
    lock: 'lease-lock',
    expect: (fence) => (fence === 'equal' ? PINNED : usual(fence)),
    async play(stage) {
      const [a, b] = await actors(stage);
      await a.acquire();
      await a.ask('read', 1);
      await a.ask('write', 2);
      await sleep(2000);
      a.tell('release');
      await a.leaves();
      await succeed(b);
      await a.ask('write', 3);
    },
  },
  revoke: {
    about: 'somebody revokes the lease of A, as in the walk-through',
    expect: usual,
    async play(stage) {
      const [a, b] = await begin(stage);
      await a.revoke();
      await a.leaves();
      await succeed(b);
      await a.ask('write', 2);
    },
  },
  pause: {
    about: 'A is stopped for longer than its lease lives (SIGSTOP)',
    expect: usual,
    async play(stage) {
      const [a, b] = await begin(stage);
      await sleepThrough(a, b);
    },
  },
  block: {
    about: 'A keeps its own event loop busy for longer than its lease lives',
    expect: usual,
    async play(stage) {
      const [a, b] = await begin(stage);
      a.tell(`block ${BLOCK}`);
      await a.leaves();
      await succeed(b);
      await a.answered(2);
    },
  },
  partition: {
    about: 'A is cut off from where its lock is, and from nothing else',
    expect: usual,
    async play(stage) {
      const [a, b] = await begin(stage);
      a.cutOff();
      await a.leaves();
      await succeed(b);
      await a.ask('write', 2);
    },
  },
  clock: {
    about: 'the clock of A is set an hour ahead, then an hour back, and then A is stopped',
    clock: true,
    expect: (fence) => ({ ...usual(fence), falseAlarm: false }),
    async play(stage) {
      const [a, b] = await begin(stage);
      // By that clock the lease is long over, and yet it is kept.
      a.setClock('ahead');
      await sleep(2 * TTL * 1000);
      // By this one there is an hour left, and yet it is over.
      a.setClock('behind');
      await sleepThrough(a, b);
    },
  },
  delay: {
    about: 'the write of A is on the wire when the lock changes hands',
    expect: usual,
    async play(stage) {
      const [a, b] = await begin(stage);
      const letGo = a.holdBack();
      const sent = a.sends();
      a.tell('write');
      await sent;
      await a.revoke();
      await a.leaves();
      await succeed(b);
      letGo();
      await a.answered(2);
    },
  },
  early: {
    about: 'A writes after it lost the lock, and before B does',
    expect: (fence) => (fence === 'equal' ? PINNED : usual(fence)),
    async play(stage) {
      const [a, b] = await begin(stage);
      await a.revoke();
      await a.leaves();
      await b.acquire();
      await b.ask('read', 1);
      await a.ask('write', 2);
      await b.ask('write', 2);
    },
  },
  restart: {
    about: 'storage is killed and started again before A goes on',
    expect: (fence, store) =>
      // Memory forgets its fence with its data; only etcd still knows who holds the lock.
      usual(store === 'memory' && fence !== 'holder' ? 'none' : fence),
    async play(stage) {
      const [a, b] = await begin(stage);
      await sleepThrough(a, b, () => stage.restartStorage());
    },
  },
  crash: {
    about: 'A is killed (SIGKILL): B gets the lock when the lease is over',
    expect: () => ({ lostUpdates: 0, staleWrite: undefined, successor: 'served' }),
    async play(stage) {
      const [a, b] = await begin(stage);
      await a.kill();
      await succeed(b);
    },
  },
  release: {
    about: 'A releases late, when its lock has run out and B has it: does it release that of B?',
    expect: () => ({ lostUpdates: 0, staleWrite: undefined, successor: 'served' }),
    async play(stage) {
      const [a, b] = await begin(stage);
      const c = await stage.worker('C');
      a.pause();
      await a.leaves();
      await b.acquire();
      await b.ask('read', 1);
      a.tell('release');
      a.resume();
      // Answered when the release is over.
      await a.ask('read', 2);
      const freed = await stage.isFree();
      if (freed) {
        await c.acquire();
        await c.ask('read', 1);
      }
      await b.ask('write', 2);
      if (freed) await c.ask('write', 2);
    },
  },
  failover: {
    about: 'the redis-server fails while A holds the lock, and its replica has not heard of it',
    locks: ['redis', 'redis-del', 'redlock'],
    expect: usual,
    async play(stage) {
      const { nth, endpoints, failover } = await stage.replica();
      const [a, b] = [await stage.worker('A'), await stage.worker('B', endpoints)];
      // Of five servers it has three, no more than it needs.
      a.cutOff(nth + 1);
      await a.acquire();
      await a.ask('read', 1);
      await failover();
      await succeed(b);
      await a.ask('write', 2);
    },
  },
  leader: {
    about: 'the leader of three members is killed while A holds the lock',
    members: 3,
    locks: ['mutex', 'lease-lock', 'etcd3'],
    expect: survives,
    play: (stage) => loseLeader(stage, () => stage.killLeader()),
  },
  freeze: {
    about: 'the leader of three members is frozen (SIGSTOP) while A holds the lock',
    members: 3,
    locks: ['mutex', 'lease-lock', 'etcd3'],
    expect: survives,
    play: (stage) => loseLeader(stage, () => stage.freezeLeader()),
  },
} satisfies Record<string, Cause>;

export type CauseName = keyof typeof causes;

/** Why the cause cannot be played with that lock on this machine, if so. */
export function obstacleTo(name: CauseName, lock: LockName): string | undefined {
  const cause: Cause = causes[name];
  if (!appliesTo(name, lock)) return `it does not apply to the lock ${lock}`;
  return cause.clock && libfaketime() === undefined ? MISSING : undefined;
}

/** Whether the cause is one for that lock. */
export function appliesTo(name: CauseName, lock: LockName): boolean {
  const cause: Cause = causes[name];
  return cause.locks?.includes(lock) ?? true;
}

/** What has to come of a cause with that lock. */
export function expected(
  name: CauseName,
  lock: LockName,
  fence: Fence,
  store: StoreKind,
): Partial<Verdict> {
  if (locks[lock].fencing) return causes[name].expect(fence, store);
  // All requests carry the same token, 0: nobody is told from another by it.
  const { tokenGrew: _, ...open }: Partial<Verdict> = causes[name].expect('none', store);
  const own = RIVALS[`${name} ${lock}`];
  if (fence === 'none' || fence === 'equal') return { ...open, ...own };
  // A fence that is worth its name lets nothing in without a token: such a lock is of no use there.
  const staleWrite = open.staleWrite && 'refused';
  return { lostUpdates: 0, successor: 'locked out', staleWrite };
}

/** What is another with that lock, by cause and lock. */
const RIVALS: Record<string, Partial<Verdict>> = {
  // It deletes the key of whoever has it.
  'release redis-del': { lostUpdates: 1 },
  // It goes by the wall clock: an hour ahead, its lock is over.
  'clock redlock': { falseAlarm: true },
};

/** Milliseconds: long enough for the lease to be gone and for B to be done. */
const BLOCK = 8000;

/** A key that its first writer keeps: the one who comes later is shut out. */
const PINNED = { lostUpdates: 0, staleWrite: 'accepted', successor: 'locked out' } as const;

/** Without a fence the late write gets in and an update is lost, with one neither. */
function usual(fence: Fence): Partial<Verdict> {
  return fence === 'none'
    ? { lostUpdates: 1, staleWrite: 'accepted', successor: 'served' }
    : { lostUpdates: 0, staleWrite: 'refused', successor: 'served' };
}

/** The lock outlives its server, and so does the order of its tokens; lease IDs have none. */
function survives(fence: Fence): Partial<Verdict> {
  const successor = fence === 'equal' ? 'locked out' : 'served';
  return { lostUpdates: 0, successor, tokenGrew: true, leaseGrew: false };
}

/** A's lease comes from a member with the higher lease IDs, that of B from the one with the lowest. */
async function loseLeader(stage: Stage, lose: () => Promise<unknown>): Promise<void> {
  const [low, ...others] = await stage.members();
  const [high] = others.toReversed();
  if (!low || !high) throw new Error('expected three members');
  await stage.lead(high);
  const [a, b] = await Promise.all([
    stage.worker('A', others.map(endpointOf)),
    stage.worker('B', [endpointOf(low)]),
  ]);
  await a.acquire();
  await a.ask('read', 1);
  await lose();
  await a.ask('write', 2);
  a.tell('release');
  await succeed(b);
}

function endpointOf({ member }: MemberStatus): string {
  return member.endpoint;
}

async function actors(stage: Stage): Promise<[a: Actor, b: Actor]> {
  return Promise.all([stage.worker('A'), stage.worker('B')]);
}

/** A holds the lock and has read. */
async function begin(stage: Stage): Promise<[a: Actor, b: Actor]> {
  const [a, b] = await actors(stage);
  await a.acquire();
  await a.ask('read', 1);
  return [a, b];
}

/** A is stopped until B is done, and whatever comes after that; then it writes before anything else. */
async function sleepThrough(a: Actor, b: Actor, after = async () => {}): Promise<void> {
  a.pause();
  await a.leaves();
  await succeed(b);
  await after();
  a.tell('write');
  a.resume();
  await a.answered(2);
}

/** B takes the lock, adds one, and releases it. */
async function succeed(b: Actor): Promise<void> {
  await b.acquire();
  await b.ask('read', 1);
  await b.ask('write', 2);
  b.tell('release');
  await b.leaves();
}
