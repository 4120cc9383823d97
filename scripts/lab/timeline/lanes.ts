// What a timeline shows of a history, whatever it is drawn with: marks in the order of their times,
// and spans from one mark to another. Spans name marks and not times, so that a picture can give
// each mark the room that its label needs. All texts are without control characters.

import type { Event, Request } from '../history.js';

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
  readonly waits: readonly Span<object>[];
  /** While it had reason to believe that it holds the lock. */
  readonly beliefs: readonly Span<{ readonly token: bigint | undefined }>[];
  readonly faults: readonly Span<{ readonly fault: string }>[];
};

/** From the mark of one index to that of another, or to the end, which has no mark. */
export type Span<T> = T & { readonly from: number; readonly to: number };

export type Owner = {
  /** Undefined if no worker ever said that it holds the lock by this key. */
  readonly who: string | undefined;
  readonly key: string;
  readonly token: bigint;
};

export type Mark = { readonly at: number } & (
  | { readonly what: 'owner'; readonly owner: Owner | undefined }
  | { readonly what: 'holds'; readonly who: string; readonly token: bigint | undefined }
  | { readonly what: 'asks' | 'releases'; readonly who: string }
  | { readonly what: 'lost' | 'fails'; readonly who: string; readonly reason: string }
  | {
      readonly what: 'fault';
      readonly who: string;
      readonly fault: string;
      readonly over: boolean;
    }
  | { readonly what: 'sends' | 'lands'; readonly message: Message }
);

/** A request on its way to storage. */
export type Message = Request & {
  /** Undefined if no worker said that it sent this. */
  readonly who: string | undefined;
  /** Undefined if nobody ever said; then it did not land. */
  readonly accepted: boolean | undefined;
  readonly reason: string;
  /** What a read that was answered has read. */
  readonly answer: string | undefined;
};

export function lanes(history: readonly Event[], server = 'etcd'): Lanes {
  const events = history
    // Storage has a lane, but none of a worker.
    .filter((event) => event.what !== 'fault' || event.who !== 'storage')
    .map(clean)
    .sort((a, b) => a.at - b.at);
  const [owners, requests] = [ownership(events), messages(events)];
  const marks = events.flatMap((event) => [
    ...(owners.get(event) ?? []),
    ...(requests.get(event) ?? own(event)),
  ]);
  const names = new Set(events.flatMap((event) => ('who' in event ? [event.who] : [])));
  return {
    server,
    marks,
    workers: [...names].map((who) => lane(who, marks)),
    owners: owners.size === 0 ? undefined : spans(marks, owning),
  };
}

/** Whether a message landed when the lock, by its server, was no longer its sender's. */
export function tooLate(mark: Mark, { marks, owners }: Lanes): boolean {
  if (mark.what !== 'lands' || mark.message.who === undefined || owners === undefined) return false;
  const index = marks.indexOf(mark);
  return !owners.some(
    ({ who, from, to }) => who === mark.message.who && from < index && index < to,
  );
}

/** Up to six digits, or the last six. */
export function shortToken(token: bigint): string {
  const digits = String(token);
  return digits.length <= 6 ? digits : `…${digits.slice(-6)}`;
}

export function shortReason(reason: string): string {
  for (const [pattern, short] of REASONS) if (pattern.test(reason)) return short;
  const [first = ''] = reason.replace(/\s*\([^)]*\)/g, '').split(':');
  return clip(first.trim() || 'refused', 24);
}

/** Without the letters that a terminal obeys, that turn lines around, that XML cannot have. */
export function plain(text: string): string {
  return text.replace(/[\p{C}\u2028\u2029]/gu, '\ufffd');
}

export function clip(text: string, max: number): string {
  const letters = [...text];
  return letters.length <= max ? text : `${letters.slice(0, max - 1).join('')}…`;
}

/** What is said of a wait or a fault; of its length, one digit after the point is enough. */
export function seconds(ms: number, digits = 1): string {
  return `${(ms / 1000).toFixed(digits)} s`;
}

/** Longer waits in which nothing happens are cut short, and the cut is shown. */
export const LONG_WAIT = 1500;

/** The texts of storage/fence.ts, which are made for logs. */
const REASONS: [RegExp, string][] = [
  [/^stale fencing token/, 'stale token'],
  [/is ahead of/, 'token not yet valid'],
  [/^expected a fencing token/, 'no token'],
  [/different from the existing version/, 'another version'],
];

function clean(event: Event): Event {
  const cleaned = (value: unknown): unknown => {
    if (typeof value === 'string') return plain(value);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, cleaned(of)]));
  };
  return cleaned(event) as Event;
}

/** The changes of the queue's first key, by the event that they are shown before. */
function ownership(events: readonly Event[]): Map<Event, Mark[]> {
  const holds = events.flatMap((event) => (event.what === 'holds' ? [event] : []));
  const marks = new Map<Event, Mark[]>();
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
    const early = events.slice(since + 1, index).find((other) => told.some((is) => is === other));
    const shown = (before?.key === first?.key ? undefined : early) ?? event;
    const owner = first && { ...first, who: holder?.who };
    marks.set(shown, [{ at: shown.at, what: 'owner', owner }]);
    since = events.indexOf(shown);
  });
  return marks;
}

/**
 * What was sent and what landed, by the event that said so. Storage does not know whose request it
 * decides: it is one of those with the same content that were on their way; of several, the one
 * that was answered first.
 */
function messages(events: readonly Event[]): Map<Event, Mark[]> {
  const sent = events.flatMap((event) => (event.what === 'sends' ? [event] : []));
  const told = new Map(
    events.flatMap((event) => (event.what === 'told' ? [[event.id, event]] : [])),
  );
  const decided = new Map<(typeof sent)[number], Event & { what: 'decided' }>();
  const marks = new Map<Event, Mark[]>();
  for (const event of events) {
    if (event.what !== 'decided') continue;
    const { at, request, accepted, reason } = event;
    const answered = ({ id }: { id: string }) => told.get(id)?.at ?? Number.POSITIVE_INFINITY;
    const [sender] = sent
      .filter((from) => !decided.has(from) && same(from.request, request))
      .filter((from) => from.at <= at && at <= answered(from))
      .filter(({ id }) => (told.get(id)?.answer.accepted ?? accepted) === accepted)
      .sort((a, b) => answered(a) - answered(b) || a.at - b.at);
    const message = { ...request, who: undefined, accepted, reason, answer: undefined };
    if (sender !== undefined) decided.set(sender, event);
    else marks.set(event, [{ at, what: 'lands', message }]);
  }
  for (const from of sent) {
    const [decision, answer] = [decided.get(from), told.get(from.id)];
    const message = {
      ...from.request,
      who: from.who,
      accepted: decision?.accepted ?? answer?.answer.accepted,
      reason: decision?.reason ?? answer?.answer.reason ?? '',
      answer: answer?.answer.accepted ? answer.answer.val : undefined,
    };
    marks.set(from, [{ at: from.at, what: 'sends', message }]);
    const landed = decision ?? answer;
    if (landed !== undefined) marks.set(landed, [{ at: landed.at, what: 'lands', message }]);
  }
  return marks;
}

function same(a: Request, b: Request): boolean {
  return a.op === b.op && a.key === b.key && a.val === b.val && a.token === b.token;
}

/** The mark of an event that is one by itself. */
function own(event: Event): Mark[] {
  switch (event.what) {
    case 'asks':
    case 'releases':
    case 'lost':
    case 'fails':
    case 'fault':
      return [event];
    case 'holds':
      return [{ at: event.at, what: 'holds', who: event.who, token: event.token }];
    case 'sends':
    case 'told':
    case 'queued':
    case 'left':
    case 'decided':
      return [];
    default:
      return event satisfies never;
  }
}

function lane(who: string, marks: readonly Mark[]): Lane {
  const faults = new Set(
    marks.flatMap((mark) => (mark.what === 'fault' && mark.who === who ? [mark.fault] : [])),
  );
  return {
    who,
    waits: spans(marks, (mark) => {
      if (!('who' in mark) || mark.who !== who) return undefined;
      if (mark.what === 'asks') return {};
      return mark.what === 'holds' || mark.what === 'fails' ? null : undefined;
    }),
    beliefs: spans(marks, (mark) => {
      if (!('who' in mark) || mark.who !== who) return undefined;
      if (mark.what === 'holds') return { token: mark.token };
      return mark.what === 'lost' || mark.what === 'releases' ? null : undefined;
    }),
    faults: [...faults].flatMap((fault) =>
      spans(marks, (mark) => {
        if (mark.what !== 'fault' || mark.who !== who || mark.fault !== fault) return undefined;
        return mark.over ? null : { fault };
      }),
    ),
  };
}

function owning(mark: Mark): Owner | null | undefined {
  return mark.what === 'owner' ? (mark.owner ?? null) : undefined;
}

/** `state`: what begins with a mark; null if all ends with it, undefined if it changes nothing. */
function spans<T extends object>(
  marks: readonly Mark[],
  state: (mark: Mark) => T | null | undefined,
): Span<T>[] {
  const found: Span<T>[] = [];
  let open: { of: T; from: number } | undefined;
  const close = (to: number) => {
    if (open !== undefined) found.push({ ...open.of, from: open.from, to });
  };
  marks.forEach((mark, index) => {
    const next = state(mark);
    if (next === undefined) return;
    close(index);
    open = next === null ? undefined : { of: next, from: index };
  });
  close(marks.length);
  return found;
}
