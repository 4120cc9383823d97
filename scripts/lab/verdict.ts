// What a run of the lab says about its fence: nothing but the history is asked.

import { lostUpdates } from './checker.js';
import { is, type Of } from './decisions.js';
import { type Event, HARMLESS, isOf, STOPS } from './history.js';
import { KEY } from './stage.js';

export type Verdict = {
  /** Accepted increments that are not in the counter any more. */
  lostUpdates: number;
  /** What became of the write of A that came when etcd had taken the lock from it, if one did. */
  staleWrite: 'accepted' | 'refused' | undefined;
  /** Whether B, while it held the lock, was let write. */
  successor: 'served' | 'locked out';
  /** Milliseconds from the fault until etcd took the lock from A. */
  takenAfter: number | undefined;
  /** Milliseconds from then until A knew; negative when it knew before. Undefined when it never did. */
  noticedAfter: number | undefined;
  /** Milliseconds from when A could have known: etcd had taken the lock, and A was running. */
  noticedLate: number | undefined;
  /** Whether A was told that it had lost the lock before anything happened that costs it. */
  falseAlarm: boolean;
  /** Milliseconds from the fault until B held the lock. */
  succeededAfter: number | undefined;
  /** Whether two workers took themselves for the holder at once. */
  together: boolean;
  /** Whether the token of B is above that of A; undefined where the lock hands out none. */
  tokenGrew: boolean | undefined;
  /** The same of the IDs of their leases; undefined where a grant does not tell it. */
  leaseGrew: boolean | undefined;
};

/** Of two workers: A is the one that asks for the lock first. */
export function verdict(history: readonly Event[]): Verdict {
  const [a = '', b = ''] = new Set(history.filter(is('asks')).map(({ who }) => who));
  const held = history.filter(is('holds')).find(({ who }) => who === a);
  const left = history.filter(is('left')).find((place) => held && isOf(held, place))?.at;
  // Of several, the one that cost it the lock. A wall clock does not.
  const fault = history
    .filter(is('fault'))
    .filter((event) => !event.over && !HARMLESS.has(event.fault))
    .findLast(({ at }) => at <= (left ?? Number.POSITIVE_INFINITY))?.at;
  const lost = history.filter(is('lost')).find(({ who }) => who === a)?.at;
  const next = history.filter(is('holds')).find(({ who }) => who === b);
  const late = writes(history, a).filter(({ at }) => left !== undefined && at > left);
  const accepted = late.some(({ answer }) => answer.accepted) ? 'accepted' : 'refused';
  const served = writes(history, b).every(({ answer }) => answer.accepted);
  return {
    lostUpdates: lostUpdates(history, KEY).length,
    staleWrite: late.length === 0 ? undefined : accepted,
    successor: served ? 'served' : 'locked out',
    takenAfter: between(fault, left),
    noticedAfter: between(left, lost),
    noticedLate:
      lost === undefined || left === undefined
        ? undefined
        : Math.max(0, lost - awake(history, a, left)),
    falseAlarm: lost !== undefined && lost < (fault ?? Number.POSITIVE_INFINITY),
    succeededAfter: between(fault, next?.at),
    together: together(history),
    tokenGrew: grew(held?.token, next?.token),
    leaseGrew: grew(leaseOf(held), leaseOf(next)),
  };
}

/** When the worker could know first that it had lost the lock: it may have been stopped. */
function awake(history: readonly Event[], who: string, left: number): number {
  const goesOn = history
    .filter(is('fault'))
    .find((event) => event.who === who && event.over && event.at > left && STOPS.has(event.fault));
  return goesOn?.at ?? left;
}

/** The lease behind a grant, if its key tells. */
function leaseOf(held: Of<'holds'> | undefined): bigint | undefined {
  const [, lease] = /\/([\da-f]{1,16})$/.exec(held?.key ?? '') ?? [];
  return lease === undefined ? undefined : BigInt(`0x${lease}`);
}

function grew(before: bigint | undefined, after: bigint | undefined): boolean | undefined {
  return before === undefined || after === undefined ? undefined : after > before;
}

/** A worker takes itself for the holder until it releases, learns of the loss, or is killed. */
function together(history: readonly Event[]): boolean {
  const holders = new Set<string>();
  return history
    .toSorted((a, b) => a.at - b.at)
    .some((event) => {
      if (event.what === 'holds') holders.add(event.who);
      else if (is('releases')(event) || is('lost')(event)) holders.delete(event.who);
      else if (is('fault')(event) && event.fault === 'killed') holders.delete(event.who);
      return holders.size > 1;
    });
}

/** What the worker was told of each of its writes. */
function writes(history: readonly Event[], who: string): Of<'told'>[] {
  const ids = new Set(
    history
      .filter(is('sends'))
      .filter((sent) => sent.who === who && sent.request.op === 'write')
      .map(({ id }) => id),
  );
  return history.filter(is('told')).filter(({ id }) => ids.has(id));
}

function between(start: number | undefined, end: number | undefined): number | undefined {
  return start === undefined || end === undefined ? undefined : end - start;
}
