// Storage's decisions in a history, each with the worker that had asked for it. Storage does not know
// who asks, so they are put together by what was asked, when, and what the worker was told; of
// several that fit, the one that was told first. So every answer that can be explained is.

import type { Event } from './history.js';

/** The events of one sort. */
export type Of<What extends Event['what']> = Extract<Event, { what: What }>;

export type Decision = {
  readonly decided: Of<'decided'>;
  /** What the key has after it; undefined: nothing yet. */
  readonly val: string | undefined;
  /** Undefined when no worker's request fits. */
  readonly asked: Asked | undefined;
};

/** A worker's request. `told`: undefined when it never learnt the outcome. */
export type Asked = { readonly sends: Of<'sends'>; readonly told: Of<'told'> | undefined };

/** An answer that no decision explains. `decided`: one of that request with another outcome. */
export type Unexplained = {
  readonly sends: Of<'sends'>;
  readonly told: Of<'told'>;
  readonly decision: Decision | undefined;
};

/** Milliseconds. Storage tells what it decided right after it has answered, and may be kept from it. */
const LATE = 500;

/** `decisions` are in the history's order, which is that of their effects. */
export function decisions(history: readonly Event[]): {
  decisions: readonly Decision[];
  unexplained: readonly Unexplained[];
} {
  const open = askedByRequest(history);
  const values = new Map<string, string>();
  const decisions = history.filter(is('decided')).map((decided): Decision => {
    const { request, accepted } = decided;
    if (request.op === 'write' && accepted) values.set(request.key, request.val);
    const val = values.get(request.key);
    const asked = take(open.get(name(request)) ?? [], decided, val);
    return { decided, val, asked };
  });
  const free = new Set(decisions.filter(({ asked }) => !asked));
  const unexplained = [...open.values()].flat().flatMap(({ sends, told }) => {
    if (!told) return [];
    const decision = [...free].find(
      ({ decided }) =>
        name(decided.request) === name(sends.request) && during(decided, sends, told),
    );
    if (decision) free.delete(decision);
    return { sends, told, decision };
  });
  return { decisions, unexplained };
}

/** Tells events of one sort from others. */
export function is<What extends Event['what']>(what: What) {
  return (event: Event): event is Of<What> => event.what === what;
}

/** Those that ask for the same, in the order they were sent. */
function askedByRequest(history: readonly Event[]): Map<string, Asked[]> {
  const told = new Map(history.filter(is('told')).map((event) => [event.id, event]));
  const all = new Map<string, Asked[]>();
  for (const sends of history.filter(is('sends')).toSorted((a, b) => a.at - b.at)) {
    const same = all.get(name(sends.request)) ?? [];
    all.set(name(sends.request), same);
    same.push({ sends, told: told.get(sends.id) });
  }
  return all;
}

/** Takes out of `open` the request that was decided: the one that had to be decided first. */
function take(open: Asked[], decided: Of<'decided'>, val: string | undefined): Asked | undefined {
  let [found, end] = [-1, Number.POSITIVE_INFINITY];
  for (const [index, { sends, told }] of open.entries()) {
    if (sends.at > decided.at) break;
    const fits = !told || (during(decided, sends, told) && agrees(told, decided, val));
    const until = told?.at ?? Number.MAX_VALUE;
    if (fits && until < end) [found, end] = [index, until];
  }
  return found < 0 ? undefined : open.splice(found, 1)[0];
}

function during(decided: Event, sends: Event, told: Event): boolean {
  return sends.at <= decided.at && decided.at <= told.at + LATE;
}

function agrees({ answer }: Of<'told'>, { request, accepted }: Of<'decided'>, val?: string) {
  if (request.op === 'write') return answer.accepted === accepted;
  // Storage accepts the token and yet answers that the key is not there.
  if (val === undefined) return answer.val === '' && (accepted || !answer.accepted);
  return answer.accepted === accepted && (!accepted || answer.val === val);
}

function name({ op, key, val, token }: Of<'sends'>['request']): string {
  return JSON.stringify([op, key, val, String(token)]);
}
