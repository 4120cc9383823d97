// Good histories have no violation and bad ones have theirs: made by hand, and by a simulated run of
// a lock and a storage that do as they should, from which one thing is then made wrong.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { check, lostUpdates, shortestExplanation, type Violation } from './checker.js';
import type { Event, Request } from './history.js';

/** The lag of the watch in what follows. */
const LAG = 5;

/** The first leaves at 10, and the watch tells so at `told`; etcd is frozen from 12 to 60. */
function frozen(told: number): Event[] {
  const fault = { who: 'etcd1', what: 'fault', fault: 'frozen' } as const;
  return [
    ...queued(0, 'a', 1n),
    ...queued(1, 'b', 2n),
    holds(2, 'a', 1n),
    holds(11, 'b', 2n),
    { at: 12, ...fault, over: false },
    { at: 60, ...fault, over: true },
    left(told, 'a', 1n, 3n),
  ];
}

test('to have been frozen excuses etcd’s watch no longer than it lasts', () => {
  expect(check(frozen(61 + LAG), undefined, LAG).map(({ kind }) => kind)).toEqual(['two owners']);
  const others = frozen(20).filter(({ what }) => what !== 'fault');
  expect(check(others, undefined, LAG).map(({ kind }) => kind)).toEqual(['two owners']);
});

describe('a good history has no violation:', () => {
  test('a simple hand-over', () => {
    expect(check(handOver(), new Map([['n', '2']]), LAG)).toEqual([]);
    expect(lostUpdates(handOver(), 'n')).toEqual([]);
  });

  test('a pause, and the stale write refused', () => {
    expect(check(paused(false), new Map([['n', '1']]), LAG)).toEqual([]);
    expect(lostUpdates(paused(false), 'n')).toEqual([]);
  });

  test('three waiters, one of whom gives up, and a watch that is late', () => {
    const history = [
      ...queued(0, 'a', 1n),
      ...queued(1, 'b', 2n),
      ...queued(2, 'c', 3n),
      ...queued(3, 'd', 4n),
      holds(4, 'a', 1n),
      releases(10, 'a'),
      left(11, 'a', 1n, 5n),
      left(12, 'c', 3n, 6n),
      { at: 12, who: 'c', what: 'fails', reason: 'timeout' } as const,
      holds(13, 'b', 2n),
      holds(30, 'd', 4n),
      // Later than the grant that it explains.
      left(30 + LAG, 'b', 2n, 7n),
    ];
    expect(check(history, new Map(), LAG)).toEqual([]);
  });

  test('a watch that told nothing while etcd was frozen', () => {
    expect(check(frozen(60 + LAG), undefined, LAG)).toEqual([]);
  });

  test('a grant told late, when the key is long gone', () => {
    const history = [
      ...queued(0, 'a', 1n),
      ...queued(1, 'b', 2n),
      left(50, 'a', 1n, 3n),
      left(90, 'b', 2n, 4n),
      holds(200, 'b', 2n),
    ];
    expect(check(history, undefined, LAG)).toEqual([]);
  });

  test('a lock without tokens, and without etcd', () => {
    const history = [
      ...untokened('a', 10, '1'),
      releases(20, 'a'),
      ...untokened('b', 30, '2'),
      releases(40, 'b'),
      ...untokened('a', 50, '3'),
    ];
    expect(check(history, new Map([['n', '3']]))).toEqual([]);
    expect(lostUpdates(history, 'n')).toEqual([]);
  });

  test('a lock without tokens, one of whose holders is told when it is too late and does not write', () => {
    const history = [
      ...queued(0, 'a', 1n),
      ...queued(1, 'b', 2n),
      left(2, 'a', 1n, 3n),
      holds(3, 'b'),
      ...write(4, 'b', '1'),
      holds(10, 'a'),
      // The rightful one, although the other one was told later.
      ...write(14, 'b', '2'),
    ];
    expect(check(history, new Map([['n', '2']]), LAG)).toEqual([]);
  });

  test.each([
    ['before', 29.5],
    ['after', 30.5],
  ])(
    'a lock without tokens, whose holder comes again with its key, told %s the grant',
    (_w, at) => {
      const history: Event[] = [
        ...queued(0, 'a', 1n),
        holds(1, 'a'),
        left(2, 'a', 1n, 2n),
        ...queued(3, 'b', 3n),
        holds(4, 'b'),
        ...write(5, 'b', '1'),
        left(9, 'b', 3n, 4n),
        { at: 29, who: 'a', what: 'asks' },
        { at, what: 'queued', key: 'q/a', token: 5n },
        holds(30, 'a'),
        ...write(31, 'a', '2'),
        left(34, 'a', 5n, 6n),
      ];
      expect(check(history, new Map([['n', '2']]), LAG)).toEqual([]);
    },
  );

  test('a lock without tokens, and one key for all', () => {
    const stay = (at: number, token: bigint): Event => ({ at, what: 'queued', key: 'q', token });
    const history: Event[] = [
      { at: 0, who: 'c', what: 'asks' },
      stay(1, 1n),
      left(2, '', 1n, 2n),
      { at: 3, who: 'a', what: 'asks' },
      stay(4, 3n),
      holds(5, 'a', undefined, 'q'),
      ...write(6, 'a', '1'),
      left(9, '', 3n, 4n),
      stay(10, 5n),
      holds(11, 'c', undefined, 'q'),
      ...write(12, 'c', '2'),
      left(15, '', 5n, 6n),
    ];
    expect(check(history, undefined, LAG)).toEqual([]);
  });

  test.each([
    ['done', '1'],
    ['not done', undefined],
  ])('a write whose outcome is unknown, and which was %s', (_what, val) => {
    const [sends, decided] = write(10, 'a', '1', 1n);
    if (!sends || !decided) throw new Error('expected events');
    const history = [...queued(0, 'a', 1n), holds(1, 'a', 1n), sends, ...(val ? [decided] : [])];
    expect(check(history, new Map(val ? [['n', val]] : []), LAG)).toEqual([]);
  });

  test('a decision that storage told after its answer was there', () => {
    const late = write(1, 'a', '1').map((event) =>
      event.what === 'decided' ? { ...event, at: event.at + 5 } : event,
    );
    expect(check(late)).toEqual([]);
    expect(lostUpdates(late, 'n')).toEqual([]);
  });

  test('two reads at once, answered the other way round, and the key not there at first', () => {
    const read = { op: 'read', key: 'n', val: '', token: 0n } as const;
    const answer = { accepted: true, val: '1', reason: '' };
    const none = { accepted: false, val: '', reason: 'key not found' };
    const history: Event[] = [
      { at: 1, who: 'a', what: 'sends', id: 'a 1', request: read },
      { at: 2, who: 'b', what: 'sends', id: 'b 1', request: read },
      { at: 3, what: 'decided', request: read, accepted: true, reason: '' },
      ...write(4, 'c', '1'),
      { at: 8, what: 'decided', request: read, accepted: true, reason: '' },
      { at: 9, who: 'a', what: 'told', id: 'a 1', answer },
      { at: 9, who: 'b', what: 'told', id: 'b 1', answer: none },
    ];
    expect(check(history)).toEqual([]);
  });
});

describe('a bad history has its violation:', () => {
  test('a token went back, by a read that carries one', () => {
    const history = [...read(1, 'b', '', 2n), ...read(5, 'a', '', 1n)];
    expect(check(history)).toMatchObject([
      {
        kind: 'token went back',
        explanation:
          "a's read of n with token 1 at 6 ms was accepted after b's read of n with token 2 at 2 ms.",
      },
    ]);
  });

  test('a stale write accepted, and its token went back', () => {
    const violations = check(paused(true), new Map([['n', '1']]), LAG);
    expect(kinds(violations)).toEqual(['stale write accepted', 'token went back']);
    const stale = violations.find(({ kind }) => kind === 'stale write accepted');
    expect(stale?.explanation).toBe(
      'a\'s write of "1" to n with token 1 at 102 ms was accepted although b\'s write of "1" to n ' +
        'with token 2 at 55 ms was before it, and b (token 2) is the newer holder than a (token 1).',
    );
  });

  test('a stale write accepted where there are no tokens, without etcd', () => {
    const history = [holds(0, 'a'), holds(5, 'b'), ...read(6, 'b', ''), ...write(10, 'a', '1')];
    const violations = check(history);
    expect(kinds(violations)).toEqual(['stale write accepted']);
    expect(violations[0]?.explanation).toContain('b (since 5 ms)');
  });

  test('a stale write accepted where there are no tokens, by etcd, although it was told last', () => {
    const history = [
      ...queued(0, 'a', 1n),
      ...queued(1, 'b', 2n),
      left(2, 'a', 1n, 3n),
      holds(3, 'b'),
      ...write(4, 'b', '1'),
      holds(10, 'a'),
      ...write(14, 'a', '2'),
    ];
    expect(kinds(check(history, undefined, LAG))).toEqual(['stale write accepted']);
    const stillThere = history.filter(({ what }) => what !== 'left');
    expect(check(stillThere, undefined, LAG)).toEqual([]);
  });

  test('not first come, first served', () => {
    const history = [
      ...queued(0, 'a', 1n),
      ...queued(1, 'b', 2n),
      ...queued(2, 'c', 3n),
      holds(3, 'a', 1n),
      left(10, 'a', 1n, 4n),
      holds(11, 'c', 3n),
      left(12, 'c', 3n, 5n),
      holds(13, 'b', 2n),
      left(14, 'b', 2n, 6n),
    ];
    const violations = check(history, undefined, LAG);
    expect(kinds(violations)).toEqual(['not first come, first served']);
    expect(violations[0]?.explanation).toBe(
      'c was told at 11 ms that it holds the lock with token 3, while token 2 waited before it.',
    );
  });

  test('two owners', () => {
    const history = [
      ...queued(0, 'a', 1n),
      holds(1, 'a', 1n),
      ...queued(2, 'b', 2n),
      holds(3, 'b', 2n),
      left(4 + LAG, 'a', 1n, 3n),
    ];
    const violations = check(history, undefined, LAG);
    expect(kinds(violations)).toEqual(['two owners']);
    expect(violations[0]?.explanation).toBe(
      'b was told at 3 ms that it holds the lock with token 2, while a held it with token 1 since 1 ms.',
    );
    expect(check(history)).toEqual([]);
  });

  test('held without the lock: by a key that never was in the queue', () => {
    const history = [...queued(0, 'a', 1n), holds(1, 'a', 1n), holds(2, 'b', 7n)];
    expect(kinds(check(history))).toEqual(['held without the lock']);
    const another = [...queued(0, 'a', 1n), holds(1, 'a', 1n, 'q/x')];
    expect(kinds(check(another))).toEqual(['held without the lock']);
  });

  test('held without the lock: by a key that was never the first', () => {
    const history = [
      ...queued(0, 'a', 1n),
      holds(1, 'a', 1n),
      ...queued(2, 'b', 2n),
      left(3, 'b', 2n, 3n),
      left(4, 'a', 1n, 4n),
      holds(20, 'b', 2n),
    ];
    expect(kinds(check(history, undefined, LAG))).toEqual(['held without the lock']);
  });

  test.each([
    ['another value', '3', 'n has "3" in the end, but the last accepted is b\'s write of "2" to n'],
    [
      'none',
      undefined,
      'n has nothing in the end, but the last accepted is b\'s write of "2" to n',
    ],
  ])('the final state differs: %s', (_what, val, explanation) => {
    const violations = check(handOver(), new Map(val ? [['n', val]] : []), LAG);
    expect(kinds(violations)).toEqual(['final state differs']);
    expect(violations[0]?.explanation).toContain(explanation);
  });

  test('the final state differs: a key that nobody wrote', () => {
    expect(check([], new Map([['n', '1']]))).toEqual([
      {
        kind: 'final state differs',
        explanation: 'n has "1" in the end, but no write of it was accepted.',
        events: [],
      },
    ]);
  });

  test.each([
    ['refused', true, 'told at 3 ms that its write of "1" to n was accepted, but storage refused'],
    [
      'accepted',
      false,
      'told at 3 ms that its write of "1" to n was refused, but storage accepted',
    ],
  ])('the answer differs: to a write that was %s', (_what, accepted, explanation) => {
    const history = write(1, 'a', '1', 0n, !accepted).map((event) =>
      event.what === 'told' ? { ...event, answer: { ...event.answer, accepted } } : event,
    );
    const violations = check(history);
    expect(kinds(violations)).toEqual(['answer differs']);
    expect(violations[0]?.explanation).toContain(explanation);
  });

  test('the answer differs: a read of another value, a write that was never decided', () => {
    const history = [...write(1, 'a', '1'), ...read(5, 'a', '2')];
    expect(check(history)).toMatchObject([
      {
        kind: 'answer differs',
        explanation:
          'a was told at 7 ms that its read of n was accepted (the value: "2"), but storage ' +
          'accepted it at 6 ms (the value: "1").',
        events: [{ what: 'sends' }, { what: 'decided' }, { what: 'told' }],
      },
    ]);
    expect(kinds(check(history.slice(0, 3).toSpliced(1, 1)))).toEqual(['answer differs']);
  });
});

test('what was wrong first comes first, whatever it is', () => {
  const history = [
    ...write(1, 'a', '1', 1n).toSpliced(1, 1),
    ...read(5, 'b', '', 2n),
    ...read(9, 'a', '', 1n),
  ];
  expect(check(history).map(({ kind }) => kind)).toEqual(['answer differs', 'token went back']);
});

test("a decision is nobody's whose request was not sent by then", () => {
  const [sends, decided] = write(2, 'a', '1');
  if (!sends || !decided) throw new Error('expected events');
  const [violation] = check([{ ...decided, at: 1 }, sends], new Map());
  expect(violation?.explanation).toContain('somebody\'s write of "1" to n at 1 ms');
});

describe('lost updates', () => {
  test('are those that were overwritten without being read, with who did it', () => {
    expect(names(paused(true))).toEqual([['b', 'a']]);
    expect(lostUpdates(paused(true), 'another')).toEqual([]);
  });

  test.each([
    ['first', 10],
    ['last', 12],
  ])('are told apart by who was answered when: the write that was sent %s came last', (_w, at) => {
    const [sends, decided, told] = write(at, 'a', '1');
    if (!sends || !decided || !told) throw new Error('expected events');
    const history: Event[] = [
      ...read(1, 'a', ''),
      ...read(5, 'b', ''),
      sends,
      ...write(11, 'b', '1'),
      // What it has read since then is not what it wrote by.
      ...read(15, 'a', '1'),
      { ...decided, at: 20 },
      { ...told, at: 21 },
    ];
    expect(names(history)).toEqual([['b', 'a']]);
  });

  test('are as many as the final value falls short, also when one brings back what was lost', () => {
    const history = [
      ...read(1, 'a', ''),
      ...write(5, 'b', '1'),
      ...read(9, 'c', '1'),
      ...write(13, 'a', '1'),
      ...write(17, 'c', '2'),
    ];
    expect(names(history)).toEqual([['a', 'c']]);
  });
});

test('the shortest explanation is the first violation, what it rests on and what befell its workers', () => {
  const history = paused(true);
  expect(shortestExplanation(check(history, undefined, LAG).toReversed(), history)).toEqual([
    '+0 ms  a is told that it holds the lock with token 1',
    '+6 ms  a: paused',
    "+47 ms  the lock's server: token 1 has left the queue, revision 3",
    '+48 ms  b is told that it holds the lock with token 2',
    '+51 ms  b sends its write of "1" to n with token 2',
    '+52 ms  storage accepts the write of "1" to n with token 2',
    '+97 ms  a: no longer paused',
    '+98 ms  a sends its write of "1" to n with token 1',
    '+99 ms  storage accepts the write of "1" to n with token 1',
  ]);
  expect(shortestExplanation([], history)).toEqual([]);
});

const seeds = fc.array(
  fc.record({ who: fc.nat(), move: fc.nat(), dt: fc.integer({ min: 1, max: 40 }) }),
  { minLength: 60, maxLength: 250 },
);
const property = (name: string, tokens: boolean, judge: (run: Run, pick: number) => void) =>
  test(name, () => {
    const judged = fc.property(seeds, fc.nat(), (steps, pick) =>
      judge(simulate(steps, tokens), pick),
    );
    fc.assert(judged, { numRuns: 100 });
  });

describe('of a simulated run', () => {
  for (const [lock, tokens] of [
    ['with tokens and a fence, whatever happens', true],
    ['without tokens, while no lease expires', false],
  ] as const) {
    property(`${lock}: nothing is wrong`, tokens, ({ history, final }) => {
      expect(check(history, final, LAG)).toEqual([]);
      expect(lostUpdates(history, 'n')).toEqual([]);
    });
  }

  property('one stale request accepted is found', true, ({ history }, pick) => {
    const refused = history.filter((event) => event.what === 'decided' && !event.accepted);
    const one = choose(refused, pick);
    const changed = history.map((event) => (event === one ? { ...event, accepted: true } : event));
    expect(kinds(check(changed, undefined, LAG))).toContain('token went back');
    if (one.what !== 'decided' || one.request.op === 'read') return;
    expect(kinds(check(changed, undefined, LAG))).toContain('stale write accepted');
  });

  property('one grant too early is found', true, ({ history }, pick) => {
    const early = history.flatMap((event) => {
      if (event.what !== 'holds') return [];
      const { token = 0n } = event;
      const at = history.find((one) => one.what === 'queued' && one.token === token)?.at ?? 0;
      const before = history.filter(
        (one) => one.what === 'left' && one.token < token && one.at > at + 1 + LAG,
      );
      return before.length > 0 ? [[event, { ...event, at: at + 1 }] as const] : [];
    });
    const [one, instead] = choose(early, pick);
    const changed = history.map((event) => (event === one ? instead : event));
    const wrong = /two owners|not first come|held without/;
    expect(kinds(check(changed, undefined, LAG)).join()).toMatch(wrong);
  });

  property('one grant with a token that nobody has is found', true, ({ history }, pick) => {
    const one = choose(
      history.filter(({ what }) => what === 'holds'),
      pick,
    );
    const changed = history.map((event) => (event === one ? { ...event, token: 999_999n } : event));
    expect(kinds(check(changed, undefined, LAG))).toContain('held without the lock');
  });

  property('one wrong answer is found', true, ({ history }, pick) => {
    const one = choose(
      history.filter((event) => event.what === 'told' && event.answer.accepted),
      pick,
    );
    const changed = history.map((event) =>
      event === one && event.what === 'told'
        ? { ...event, answer: { ...event.answer, accepted: false } }
        : event,
    );
    expect(kinds(check(changed, undefined, LAG))).toEqual(['answer differs']);
  });

  property('one accepted write that is gone in the end is found', true, ({ history, final }) => {
    fc.pre(final.size > 0);
    expect(kinds(check(history, new Map(), LAG))).toEqual(['final state differs']);
  });

  property('without a fence all lost updates are counted', true, ({ moves }) => {
    const { history, final } = simulate(moves, true, false);
    const accepted = history.filter(
      (event) => event.what === 'decided' && event.accepted && event.request.op === 'write',
    );
    const lost = accepted.length - Number(final.get('n') ?? 0);
    expect(lostUpdates(history, 'n')).toHaveLength(lost);
    if (lost > 0) expect(kinds(check(history, final, LAG))).toContain('stale write accepted');
  });
});

type Move = { who: number; move: number; dt: number };
type Run = { history: Event[]; final: Map<string, string>; moves: readonly Move[] };

/**
 * Three workers increment a counter under the lock. Each moves when told so; a lease may expire, a
 * request may wait on the wire, an answer may get lost.
 */
function simulate(moves: readonly Move[], tokens: boolean, fenced = tokens): Run {
  type Me = {
    who: string;
    state: 'idle' | 'waits' | 'holds' | 'has read' | 'has written';
    token: bigint;
    value: number;
    /** On the wire. */
    open?: { id: string; request: Request };
  };
  const workers = ['a', 'b', 'c'].map((who): Me => ({ who, state: 'idle', token: 0n, value: 0 }));
  const history: Event[] = [];
  const final = new Map<string, string>();
  const leave: (token: bigint) => void = (token) => {
    const index = line.findIndex((one) => one.token === token);
    const [one] = index < 0 ? [] : line.splice(index, 1);
    if (one) history.push(left(at + LAG, one.who, token, ++revision));
  };
  const line: { who: string; token: bigint }[] = [];
  let [at, revision, highest, ids] = [0, 0n, 0n, 0];

  function send(me: Me, op: Request['op']): void {
    const val = op === 'read' ? '' : String(me.value + 1);
    const request = { op, key: 'n', val, token: tokens ? me.token : 0n };
    me.open = { id: `${me.who} ${++ids}`, request };
    history.push({ at, who: me.who, what: 'sends', ...me.open });
  }

  function arrive(me: Me, { id, request }: NonNullable<Me['open']>, isLost: boolean): void {
    const { op, key, token } = request;
    const accepted = !fenced || token >= highest;
    if (accepted && token > highest) highest = token;
    if (accepted && op === 'write') final.set(key, request.val);
    const found = accepted && final.get(key);
    const answer = found
      ? { accepted, val: found, reason: '' }
      : { accepted: false, val: '', reason: accepted ? 'key not found' : 'stale' };
    history.push({ at, what: 'decided', request, accepted, reason: accepted ? '' : 'stale' });
    delete me.open;
    const known = !isLost || op === 'read';
    if (known) history.push({ at: at + 0.5, who: me.who, what: 'told', id, answer });
    me.value = Number(found || 0);
    me.state = op === 'write' || !accepted ? 'has written' : 'has read';
  }

  for (const { who, move, dt } of moves) {
    at += dt;
    const me = workers[who % workers.length];
    const first = line[0];
    if (!me) continue;
    if (tokens && first && move % 10 === 0) {
      leave(first.token);
    } else if (me.open) {
      arrive(me, me.open, move % 7 === 0);
    } else if (me.state === 'idle') {
      me.token = ++revision;
      line.push({ who: me.who, token: me.token });
      history.push(...queued(at, me.who, me.token));
      me.state = 'waits';
    } else if (me.state === 'waits') {
      if (first?.token === me.token) {
        history.push(holds(at, me.who, tokens ? me.token : undefined));
        me.state = 'holds';
      } else if (move % 5 === 0 || !line.some(({ token }) => token === me.token)) {
        history.push({ at, who: me.who, what: 'fails', reason: 'gave up' });
        leave(me.token);
        me.state = 'idle';
      }
    } else if (me.state === 'holds') {
      send(me, 'read');
    } else if (me.state === 'has read') {
      send(me, 'write');
    } else {
      history.push(releases(at, me.who));
      leave(me.token);
      me.state = 'idle';
    }
  }
  return { history: history.toSorted((a, b) => a.at - b.at), final, moves };
}

function choose<T>(all: readonly T[], pick: number): T {
  fc.pre(all.length > 0);
  const one = all[pick % all.length];
  if (!one) throw new Error('expected one');
  return one;
}

/** Whose updates of n were lost, and to whom. */
function names(history: readonly Event[]) {
  return lostUpdates(history, 'n').map(({ overwritten, by }) =>
    [overwritten, by].map(({ asked }) => asked?.sends.who),
  );
}

function kinds(violations: readonly Violation[]): string[] {
  return violations.map(({ kind }) => kind).toSorted();
}

/** Two workers, one after the other, add one each. */
function handOver(): Event[] {
  return [
    ...queued(0, 'a', 1n),
    ...queued(1, 'b', 2n),
    holds(2, 'a', 1n),
    ...read(3, 'a', '', 1n),
    ...write(7, 'a', '1', 1n),
    releases(11, 'a'),
    left(12, 'a', 1n, 3n),
    holds(13, 'b', 2n),
    ...read(14, 'b', '1', 2n),
    ...write(18, 'b', '2', 2n),
  ];
}

/** Worker a reads, is paused past its TTL, and writes when b has written already. */
function paused(accepted: boolean): Event[] {
  return [
    ...queued(0, 'a', 1n),
    ...queued(1, 'b', 2n),
    { at: 1, who: 'a', what: 'fault', fault: 'cut off from etcd', over: false },
    { at: 2, who: 'a', what: 'fault', fault: 'cut off from etcd', over: true },
    holds(3, 'a', 1n),
    ...read(4, 'a', '', 1n),
    { at: 9, who: 'a', what: 'fault', fault: 'paused', over: false },
    left(50, 'a', 1n, 3n),
    holds(51, 'b', 2n),
    ...read(51, 'b', '', 2n),
    ...write(54, 'b', '1', 2n),
    { at: 100, who: 'a', what: 'fault', fault: 'paused', over: true },
    ...write(101, 'a', '1', 1n, accepted),
    left(120, 'b', 2n, 4n),
  ];
}

/** Takes a lock that hands out no token, reads the counter and writes it. */
function untokened(who: string, at: number, val: string): Event[] {
  const before = Number(val) - 1 || '';
  return [holds(at, who), ...read(at + 1, who, `${before}`), ...write(at + 4, who, val)];
}

function queued(at: number, who: string, token: bigint): Event[] {
  return [
    { at, who, what: 'asks' },
    { at: at + 0.5, what: 'queued', key: `q/${who}`, token },
  ];
}

function left(at: number, who: string, token: bigint, revision: bigint): Event {
  return { at, what: 'left', key: `q/${who}`, token, revision };
}

function holds(at: number, who: string, token?: bigint, key = `q/${who}`): Event {
  return { at, who, what: 'holds', key, ...(token !== undefined && { token }) };
}

function releases(at: number, who: string): Event {
  return { at, who, what: 'releases' };
}

/** Sent, decided a millisecond later, told another one later. A `val` of '': not there. */
function read(at: number, who: string, val: string, token = 0n): Event[] {
  return exchange(at, who, { op: 'read', key: 'n', val: '', token }, true, val);
}

function write(at: number, who: string, val: string, token = 0n, accepted = true): Event[] {
  return exchange(at, who, { op: 'write', key: 'n', val, token }, accepted, accepted ? val : '');
}

function exchange(at: number, who: string, request: Request, accepted: boolean, val: string) {
  const id = `${who} ${at}`;
  const answer = { accepted: accepted && val !== '', val, reason: val === '' ? 'no' : '' };
  return [
    { at, who, what: 'sends', id, request },
    { at: at + 1, what: 'decided', request, accepted, reason: accepted ? '' : 'stale' },
    { at: at + 2, who, what: 'told', id, answer },
  ] satisfies Event[];
}
