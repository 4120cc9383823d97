// Judges a history: did the lock have one owner at a time, in the order they came, and did storage
// let nobody in who was no longer the owner? Pure. etcd's events are ordered by revision: a watch
// tells them late, later even than the grant that they explain. Where requests carry no token, what
// counts is when their sender was told that it holds the lock, and its place in etcd's queue.

import { type Decision, decisions, is, type Of, type Unexplained } from './decisions.js';
import type { Event } from './history.js';
import { line, ms, show, what } from './words.js';

export type Violation = {
  readonly kind:
    | 'token went back'
    | 'stale write accepted'
    | 'not first come, first served'
    | 'final state differs'
    | 'answer differs'
    | 'two owners'
    | 'held without the lock';
  /** One sentence. */
  readonly explanation: string;
  /** Those that it takes, in time order. */
  readonly events: readonly Event[];
};

/** `overwritten` was accepted, and then `by` by someone who had not read it. */
export type Clash = { readonly overwritten: Decision; readonly by: Decision };

/**
 * All violations, those first that were complete first. The queue is not judged in a history
 * without etcd's events.
 *
 * @param final what storage has in the end; default: not compared
 * @param lag milliseconds that the watch may be late, or more by as long as etcd was killed or frozen
 *   then: who leaves the queue within them after another was granted the lock is taken to have left
 *   before
 */
export function check(
  history: readonly Event[],
  final?: ReadonlyMap<string, string>,
  lag = 500,
): Violation[] {
  const { decisions: decided, unexplained } = decisions(history);
  const places = queue(history);
  const watch = new Lateness(history, lag);
  const tenures = history
    .filter(is('holds'))
    .toSorted((a, b) => a.at - b.at)
    .map((holds): Tenure => ({ holds, place: placeOf(holds, places, history) }));
  const violations = [
    ...tokensGoneBack(decided),
    ...staleWrites(decided, tenures, watch),
    ...(places.length > 0 ? wrongOwners(tenures, places, watch) : []),
    ...wrongAnswers(unexplained),
  ];
  const end = ({ events }: Violation) => events.at(-1)?.at ?? Number.POSITIVE_INFINITY;
  violations.sort((a, b) => end(a) - end(b));
  return [...violations, ...(final ? wrongValues(decided, final) : [])];
}

/**
 * The accepted increments of a counter that are missing in its final value: workers add one to what
 * they read or wrote last, and write. Their number is that of all accepted increments minus the final value.
 */
export function lostUpdates(history: readonly Event[], key: string): Clash[] {
  const writes: { decision: Decision; base: number }[] = [];
  const reads = new Map<string, { at: number; seen: number }[]>();
  for (const decision of decisions(history).decisions) {
    const { decided, asked } = decision;
    if (decided.request.key !== key || !decided.accepted) continue;
    const who = asked?.sends.who ?? '';
    const mine = reads.get(who) ?? [];
    reads.set(who, mine);
    if (decided.request.op === 'write') {
      const read = mine.findLast(({ at }) => asked && at <= asked.sends.at);
      writes.push({ decision, base: (read?.seen ?? 0) - 1 });
    }
    // Whoever wrote knows the value as well as whoever read it.
    if (asked?.told) mine.push({ at: asked.told.at, seen: writes.length });
  }
  // From the last write back to what it had read, and so on: what is passed over is lost.
  const clashes: Clash[] = [];
  let by = writes.at(-1);
  while (by) {
    const { decision, base } = by;
    const between = writes.slice(base + 1, writes.indexOf(by));
    clashes.unshift(...between.map((write) => ({ overwritten: write.decision, by: decision })));
    by = base < 0 ? undefined : writes[base];
  }
  return clashes;
}

/**
 * The first violation's events, and what befell its workers meanwhile: a line each, in time order,
 * with the milliseconds since the first. None without a violation.
 */
export function shortestExplanation(
  [first]: readonly Violation[],
  history: readonly Event[],
): string[] {
  if (!first) return [];
  const [start, end] = [first.events[0]?.at ?? 0, first.events.at(-1)?.at ?? 0];
  const whos = new Set(first.events.flatMap((event) => ('who' in event ? event.who : [])));
  const matters = (event: Event) =>
    first.events.includes(event) ||
    ((event.what === 'fault' || event.what === 'lost') &&
      whos.has(event.who) &&
      event.at >= start &&
      event.at <= end);
  return inTime(history.filter(matters)).map((event) => `+${ms(event.at - start)}  ${line(event)}`);
}

/** A key's stay in the queue. */
type Place = { readonly queued: Of<'queued'>; readonly left: Of<'left'> | undefined };

/** A worker's belief to hold the lock, and what it rests on. */
type Tenure = { readonly holds: Of<'holds'>; readonly place: Place | undefined };

/** How late etcd's watch may be. */
class Lateness {
  readonly #lag: number;
  /** From when to when nobody could ask some member of etcd. */
  readonly #mute: readonly { from: number; to: number }[];

  constructor(history: readonly Event[], lag: number) {
    this.#lag = lag;
    const faults = history.filter(is('fault')).filter(({ who }) => who.startsWith('etcd'));
    this.#mute = faults.flatMap(({ at: from, who, over }) => {
      if (over) return [];
      const end = faults.find((other) => other.over && other.who === who && other.at > from);
      return [{ from, to: end?.at ?? Number.POSITIVE_INFINITY }];
    });
  }

  /** Whether what was told at `event.at` may have been so at `at`. */
  mayHaveBeen(event: Event, at: number): boolean {
    const told = (by: number) => event.at <= by + this.#lag;
    return (
      told(at) || this.#mute.some(({ from, to }) => from <= at + this.#lag && at <= to && told(to))
    );
  }
}

/** By create revision. */
function queue(history: readonly Event[]): Place[] {
  const left = new Map(history.filter(is('left')).map((event) => [event.token, event]));
  return history
    .filter(is('queued'))
    .map((queued) => ({ queued, left: left.get(queued.token) }))
    .toSorted((a, b) => Number(a.queued.token - b.queued.token));
}

function placeOf(holds: Of<'holds'>, places: Place[], history: readonly Event[]) {
  const { at, who, token } = holds;
  if (token !== undefined) return places.find(({ queued }) => queued.token === token);
  // A key may come again. This stay is shown after it was asked for, but maybe later than granted.
  const asked = history.findLast(
    (event) => is('asks')(event) && event.who === who && event.at <= at,
  );
  const stays = places.filter(
    ({ queued }) => queued.key === holds.key && queued.at >= (asked?.at ?? 0),
  );
  return stays.findLast(({ queued }) => queued.at <= at) ?? stays[0];
}

function tokensGoneBack(decided: readonly Decision[]): Violation[] {
  const newest = new Map<string, Decision>();
  return accepted(decided).flatMap((decision): Violation[] => {
    const { key, token } = decision.decided.request;
    const last = newest.get(key);
    if (token <= 0n) return [];
    if (!last || last.decided.request.token <= token) {
      newest.set(key, decision);
      return [];
    }
    return [
      {
        kind: 'token went back',
        explanation: `${request(decision)} was accepted after ${request(last)}.`,
        events: inTime(eventsOf(last), eventsOf(decision)),
      },
    ];
  });
}

/** By what a request may claim to be newer than others: its token, or its sender's tenure. */
type Claim = { readonly decision: Decision; readonly token?: bigint; readonly tenure?: Tenure };

function staleWrites(
  decided: readonly Decision[],
  tenures: Tenure[],
  watch: Lateness,
): Violation[] {
  const newest = new Map<string, Claim>();
  const byToken = new Map(tenures.map((tenure) => [tenure.holds.token, tenure]));
  return accepted(decided).flatMap((decision): Violation[] => {
    const { at, request: asked } = decision.decided;
    const { sends } = decision.asked ?? {};
    const claim = claimOf(
      decision,
      asked.token > 0n
        ? byToken.get(asked.token)
        : tenures.findLast(({ holds }) => holds.who === sends?.who && holds.at <= sends.at),
    );
    const last = newest.get(asked.key);
    if (!claim) return [];
    if (!last || !isNewer(last, claim)) {
      newest.set(asked.key, claim);
      return [];
    }
    const { place } = claim.tenure ?? {};
    const over = asked.token > 0n || !place || (place.left && watch.mayHaveBeen(place.left, at));
    if (asked.op === 'read' || !over) return [];
    const grounds = [last.tenure?.holds, claim.tenure?.holds, place?.left]
      .filter((event) => event !== undefined)
      .filter((event) => watch.mayHaveBeen(event, at));
    return [
      {
        kind: 'stale write accepted',
        explanation:
          `${request(decision)} was accepted although ${request(last.decision)} was before it, ` +
          `and ${holder(last)} is the newer holder than ${holder(claim)}.`,
        events: inTime(eventsOf(last.decision), eventsOf(decision), grounds),
      },
    ];
  });
}

function claimOf(decision: Decision, tenure: Tenure | undefined): Claim | undefined {
  const { token } = decision.decided.request;
  if (token <= 0n && !tenure) return undefined;
  const rank = token > 0n ? token : (tenure?.holds.token ?? tenure?.place?.queued.token);
  return { decision, ...(rank !== undefined && { token: rank }), ...(tenure && { tenure }) };
}

function isNewer(a: Claim, b: Claim): boolean {
  if (a.token !== undefined && b.token !== undefined) return a.token > b.token;
  return (a.tenure?.holds.at ?? 0) > (b.tenure?.holds.at ?? 0);
}

/** Each grant is judged by those that were before it in the queue. */
function wrongOwners(tenures: Tenure[], places: Place[], watch: Lateness): Violation[] {
  return tenures.flatMap(({ holds, place }): Violation[] => {
    const { at, who, token, key } = holds;
    if (token === undefined) return [];
    const grant = `${who} was told at ${ms(at)} that it holds the lock with token ${token}`;
    if (!place || (key !== undefined && key !== place.queued.key)) {
      const explanation = `${grant}, but no such key was ever in the queue.`;
      return [{ kind: 'held without the lock', explanation, events: [holds] }];
    }
    const { queued, left } = place;
    const before = places.find(
      (other) =>
        other.queued.token < queued.token &&
        (!other.left ||
          !watch.mayHaveBeen(other.left, at) ||
          (left !== undefined && other.left.revision > left.revision)),
    );
    if (!before) return [];
    const events = inTime(
      [holds, queued, before.queued],
      [left, before.left].filter((event) => event !== undefined),
    );
    if (left && left.at <= at) {
      const explanation = `${grant}, but its key had left at revision ${left.revision} without having been the first.`;
      return [{ kind: 'held without the lock', explanation, events }];
    }
    const owner = tenures.find((other) => other.place === before && other.holds.at <= at)?.holds;
    return [
      owner
        ? {
            kind: 'two owners',
            explanation: `${grant}, while ${owner.who} held it with token ${before.queued.token} since ${ms(owner.at)}.`,
            events: inTime(events, [owner]),
          }
        : {
            kind: 'not first come, first served',
            explanation: `${grant}, while token ${before.queued.token} waited before it.`,
            events,
          },
    ];
  });
}

function wrongAnswers(unexplained: readonly Unexplained[]): Violation[] {
  return unexplained.flatMap(({ sends, told, decision }): Violation[] => {
    // Storage may refuse what it did not decide, as when its store is out of reach.
    if (!decision && !told.answer.accepted) return [];
    const found = (val: string | undefined) =>
      sends.request.op === 'read' ? ` (the value: ${show(val)})` : '';
    const answer = `was ${told.answer.accepted ? 'accepted' : 'refused'}${found(told.answer.val)}`;
    const truth = decision
      ? `storage ${decision.decided.accepted ? 'accepted' : 'refused'} it at ${ms(decision.decided.at)}${found(decision.val)}`
      : 'storage decided no such request in that time';
    return [
      {
        kind: 'answer differs',
        explanation: `${sends.who} was told at ${ms(told.at)} that its ${what(sends.request)} ${answer}, but ${truth}.`,
        events: inTime([sends, told], decision ? [decision.decided] : []),
      },
    ];
  });
}

function wrongValues(decided: readonly Decision[], final: ReadonlyMap<string, string>) {
  const last = new Map(
    accepted(decided)
      .filter((decision) => decision.decided.request.op === 'write')
      .map((decision) => [decision.decided.request.key, decision]),
  );
  return [...new Set([...last.keys(), ...final.keys()])].flatMap((key): Violation[] => {
    const [write, val] = [last.get(key), final.get(key)];
    if (write?.val === val) return [];
    const reason = write ? `the last accepted is ${request(write)}` : 'no write of it was accepted';
    return [
      {
        kind: 'final state differs',
        explanation: `${key} has ${show(val)} in the end, but ${reason}.`,
        events: write ? inTime(eventsOf(write)) : [],
      },
    ];
  });
}

function accepted(decided: readonly Decision[]): Decision[] {
  return decided.filter((decision) => decision.decided.accepted);
}

function eventsOf({ decided, asked }: Decision): Event[] {
  return asked ? [asked.sends, decided] : [decided];
}

function inTime(...events: Event[][]): Event[] {
  return [...new Set(events.flat())].toSorted((a, b) => a.at - b.at);
}

function holder({ decision, tenure, token }: Claim): string {
  const who = tenure?.holds.who ?? decision.asked?.sends.who ?? 'somebody';
  return `${who} (${token === undefined ? `since ${ms(tenure?.holds.at ?? 0)}` : `token ${token}`})`;
}

/** As `a's write of "1" to counter with token 7 at 12 ms`. */
function request({ decided, asked }: Decision): string {
  return `${asked?.sends.who ?? 'somebody'}'s ${what(decided.request)} at ${ms(decided.at)}`;
}
