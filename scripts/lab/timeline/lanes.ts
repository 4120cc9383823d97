// What a timeline shows of a history, whatever it is drawn with: marks in the order of their times,
// and spans from one mark to another. Spans name marks and not times, so that a picture can give
// each mark the room that its label needs.

import { type Asked, decisions, is, type Of } from '../decisions.js';
import type { Event, Request, Worker } from '../history.js';

export type Lanes = {
  /** What the lock's own server is called. */
  readonly server: string;
  /** In order of appearance. */
  readonly workers: readonly Lane[];
  /** Who held the lock by that server. Undefined if the history has no queue, as of another lock. */
  readonly owners: readonly Span<Owner>[] | undefined;
  readonly marks: readonly Mark[];
};

export type Lane = {
  readonly who: string;
  readonly waits: readonly Span<true>[];
  /** While it had reason to believe that it holds the lock: whether it did. True, if nobody can know. */
  readonly beliefs: readonly Span<boolean>[];
  readonly faults: readonly Span<true>[];
};

/** What was so from the mark of one index to that of another, or to the end, which has no mark. */
export type Span<T> = { readonly is: T; readonly from: number; readonly to: number };

export type Owner = {
  /** Undefined if no worker ever said that it holds the lock by this key. */
  readonly who: string | undefined;
  readonly key: string;
  readonly token: bigint;
};

export type Mark = { readonly at: number } & (
  | Exclude<Worker, { what: 'sends' | 'told' }>
  | { readonly what: 'owner'; readonly owner: Owner | undefined }
  | { readonly what: 'sends'; readonly message: Message }
  | { readonly what: 'lands'; readonly message: Message }
);

/** A request on its way to storage. */
export type Message = Request & {
  /** Undefined if no worker said that it sent this. */
  readonly who: string | undefined;
  readonly fate: Fate;
  readonly reason: string;
  /** What a read has read. */
  readonly answer: string;
};

/**
 * Answered: a read. Stale: a write that was accepted when the lock, by its server, was no longer its
 * sender's. Lost: nobody ever said what became of it, so it did not land.
 */
export type Fate = 'accepted' | 'stale' | 'answered' | 'refused' | 'lost';

export function lanes(history: readonly Event[], server = 'etcd'): Lanes {
  const events = history
    // Storage has a lane, but none of a worker.
    .filter((event) => event.what !== 'fault' || event.who !== 'storage')
    .sort((a, b) => a.at - b.at);
  const owners = ownership(events);
  const requests = messages(events, owners);
  const marks = events
    .flatMap((event) => [owners.get(event), requests.get(event) ?? own(event)])
    .filter((mark) => mark !== undefined);
  const names = new Set(events.flatMap((event) => ('who' in event ? [event.who] : [])));
  return {
    server,
    marks,
    workers: [...names].map((who) => lane(who, marks, owners.size > 0)),
    owners:
      owners.size === 0
        ? undefined
        : spans<Owner>(marks, (mark, owner) => (mark.what === 'owner' ? mark.owner : owner)),
  };
}

/** Longer waits in which nothing happens are cut short, and the cut is shown. */
export const LONG_WAIT = 1500;

type Owners = Map<Event, Mark & { readonly what: 'owner' }>;

/** The changes of the queue's first key, by the event that they are shown before. */
function ownership(events: readonly Event[]): Owners {
  const holds = events.filter(is('holds'));
  const marks: Owners = new Map();
  let queue: { readonly key: string; readonly token: bigint }[] = [];
  let since = -1;
  events.forEach((event, index) => {
    if (event.what !== 'queued' && event.what !== 'left') return;
    const { key, token } = event;
    const [before] = queue;
    queue = queue.filter((entry) => entry.key !== key || entry.token !== token);
    if (event.what === 'queued') queue.push({ key, token });
    queue.sort((a, b) => (a.token < b.token ? -1 : 1));
    const [first] = queue;
    if (first === before) return;
    const told = holds.filter((hold) => hold.key === first?.key);
    const [holder = holds.find((hold) => hold.token === first?.token)] = told;
    // A watch may tell of it later than the worker was told, but etcd did it before.
    const early = events
      .slice(since + 1, index)
      .find((other) => told.some((hold) => hold === other));
    const shown = (before?.key === first?.key ? undefined : early) ?? event;
    const owner = first && { ...first, who: holder?.who };
    marks.set(shown, { at: shown.at, what: 'owner', owner });
    since = events.indexOf(shown);
  });
  return marks;
}

/** What was sent and what landed, by the event that said so. */
function messages(events: readonly Event[], owners: Owners): Map<Event, Mark> {
  const marks = new Map<Event, Mark>();
  const add = (request: Request, { sends, told, decided }: Exchange) => {
    // Storage tells what it decided right after it has answered, and may be kept from it.
    const end = told && decided && told.at < decided.at ? told : (decided ?? told);
    const verdict = decided ?? told?.answer;
    const late = sends && end && isLate(sends.who, end, events, owners);
    const message = {
      ...request,
      who: sends?.who,
      fate: fate(request.op, verdict?.accepted, late),
      reason: verdict?.reason ?? '',
      answer: told?.answer.accepted ? told.answer.val : '',
    };
    if (sends) marks.set(sends, { at: sends.at, what: 'sends', message });
    if (end) marks.set(end, { at: end.at, what: 'lands', message });
  };
  const { decisions: all, unexplained } = decisions(events);
  const odd = new Map(unexplained.map(({ decision, ...asked }) => [decision, asked]));
  for (const decision of all) {
    const { decided, asked = odd.get(decision) } = decision;
    add(decided.request, { ...asked, decided });
  }
  const told = new Map(events.filter(is('told')).map((event) => [event.id, event]));
  for (const sends of events.filter(is('sends'))) {
    if (!marks.has(sends)) add(sends.request, { sends, told: told.get(sends.id) });
  }
  return marks;
}

type Exchange = Partial<Asked> & { readonly decided?: Of<'decided'> };

/** Whether the lock, by its server, was not that worker's then; not, if nobody can know. */
function isLate(who: string, then: Event, events: readonly Event[], owners: Owners): boolean {
  const owner = events.slice(0, events.indexOf(then)).findLast((event) => owners.has(event));
  return owners.size > 0 && (owner && owners.get(owner)?.owner?.who) !== who;
}

function fate(op: Request['op'], accepted: boolean | undefined, late = false): Fate {
  if (accepted === undefined) return 'lost';
  if (!accepted) return 'refused';
  if (op === 'read') return 'answered';
  return late ? 'stale' : 'accepted';
}

/** The mark of an event that is one by itself. */
function own(event: Event): Mark | undefined {
  switch (event.what) {
    case 'sends':
    case 'told':
    case 'queued':
    case 'left':
    case 'decided':
      return undefined;
    default:
      return event;
  }
}

function lane(who: string, marks: readonly Mark[], known: boolean): Lane {
  const did = (mark: Mark) => ('who' in mark && mark.who === who ? mark.what : undefined);
  const faults = new Set(
    marks.flatMap((mark) => (mark.what === 'fault' && mark.who === who ? [mark.fault] : [])),
  );
  let [believes, owns] = [false, !known];
  return {
    who,
    waits: spans<true>(marks, (mark, before) => {
      if (did(mark) === 'asks') return true;
      return did(mark) === 'holds' || did(mark) === 'fails' ? undefined : before;
    }),
    beliefs: spans<boolean>(marks, (mark) => {
      if (mark.what === 'owner') owns = mark.owner?.who === who;
      if (did(mark) === 'holds') believes = true;
      if (did(mark) === 'lost' || did(mark) === 'releases') believes = false;
      return believes ? owns : undefined;
    }),
    faults: [...faults].flatMap((fault) =>
      spans<true>(marks, (mark, before) => {
        if (mark.what !== 'fault' || mark.who !== who || mark.fault !== fault) return before;
        return mark.over ? undefined : true;
      }),
    ),
  };
}

/** `next`: what is so after a mark, by what was so before it; undefined if nothing is. */
function spans<T>(
  marks: readonly Mark[],
  next: (mark: Mark, before: T | undefined) => T | undefined,
): Span<T>[] {
  const found: Span<T>[] = [];
  let [is, from]: [T | undefined, number] = [undefined, 0];
  [...marks, undefined].forEach((mark, index) => {
    const then = mark && next(mark, is);
    if (then === is) return;
    if (is !== undefined) found.push({ is, from, to: index });
    [is, from] = [then, index];
  });
  return found;
}
