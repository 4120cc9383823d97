// Every rule on every store, through the service: what must hold whatever the interleaving.

import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Etcd3 } from 'etcd3';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { connect } from '../client/concurrency/index.js';
import { type Rule, rules } from './fence.js';
import type { Response } from './protocol.js';
import { handle } from './service.js';
import { EtcdStore } from './stores/etcd.js';
import { LmdbStore } from './stores/lmdb.js';
import { MemoryStore } from './stores/memory.js';
import type { Entry, Store } from './stores/store.js';

let etcd: Etcd3;
let folder: string;
let lmdb: LmdbStore;

beforeAll(async () => {
  etcd = await connect({ endpoints: inject('etcd') });
  folder = await mkdtemp(join(tmpdir(), 'fencing-test-'));
  lmdb = await LmdbStore.open(folder);
});

afterAll(async () => {
  await lmdb.close();
  await rm(folder, { recursive: true });
  etcd.close();
});

/** How many random schedules each gets: those on a disk or a network take longer. */
const STORES: [name: string, runs: number, create: () => Store][] = [
  ['memory', 300, () => new MemoryStore()],
  ['lmdb', 40, () => under(randomUUID(), lmdb)],
  ['etcd', 25, () => new EtcdStore(etcd, `/fencing-test/${randomUUID()}/`)],
];

const KEYS = ['a', 'b'];

/** What one client asks; `holder` is who etcd says it is at that moment, for the rule that asks. */
const request = fc.record({
  op: fc.constantFrom('read', 'write'),
  key: fc.constantFrom(...KEYS),
  version: fc.bigInt({ min: -1n, max: 6n }),
  holder: fc.option(fc.bigInt({ min: 1n, max: 6n }), { nil: undefined }),
});
type Asked = { op: string; key: string; version: bigint; holder: bigint | undefined };

const cases = STORES.flatMap(([name, runs, create]) =>
  Object.values<Rule>(rules).map((rule) => ({ name, runs, create, rule })),
);

describe.each(cases)('$rule.name on the $name store', ({ runs, create, rule }) => {
  it('gives the answers of the rule, one request after another', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(request, { maxLength: 20 }), async (requests) => {
        const ask = client(create(), rule);
        const model = new Map<string, Entry>();
        for (const [i, asked] of requests.entries()) {
          expect(await ask(asked, `value ${i}`)).toEqual(apply(model, rule, asked, `value ${i}`));
        }
      }),
      { numRuns: runs },
    );
  });

  it('gives answers that some order explains, in which nothing comes before what had ended', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(request, { maxLength: 3 }), { maxLength: 3 }),
        async (clients) => {
          const store = create();
          const ask = client(store, rule);
          const calls: Call[] = [];
          let clock = 0;
          await Promise.all(
            clients.map(async (requests) => {
              for (const asked of requests) {
                const call: Call = {
                  asked,
                  val: `value ${clock}`,
                  start: clock++,
                  end: 0,
                  answer: undefined,
                };
                calls.push(call);
                call.answer = await ask(asked, call.val);
                call.end = clock++;
              }
            }),
          );
          const final = await Promise.all(KEYS.map((key) => store.read(key)));
          expect(explains(new Map(), rule, calls, final)).toBe(true);
        },
      ),
      { numRuns: runs },
    );
  });

  it('lets no accepted token go back, and changes nothing when it refuses', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(request, { minLength: 5, maxLength: 30 }), async (requests) => {
        const store = create();
        const seen = new Map<string, bigint>();
        const watching = over(store, {
          update: async (key, decide) => {
            let before: Entry | undefined;
            const decision = await store.update(key, (current) => {
              before = current;
              return decide(current);
            });
            if ('entry' in decision && rule.fencesReads) {
              expect(decision.entry.version >= (before?.version ?? 1n)).toBe(true);
            }
            return decision;
          },
        });
        const ask = client(watching, rule);
        await Promise.all(
          requests.map(async (asked, i) => {
            const { err } = await ask(asked, `value ${i}`);
            if (err !== '' || asked.op !== 'write') return;
            seen.set(asked.key, max(seen.get(asked.key), asked.version));
          }),
        );
        for (const [key, highest] of seen) {
          const entry = await store.read(key);
          if (rule.fencesReads) expect((entry?.version ?? 0n) >= highest).toBe(true);
          expect(requests[Number(entry?.val?.slice(6))]).toMatchObject({ op: 'write', key });
        }
      }),
      { numRuns: Math.ceil(runs / 2) },
    );
  });
});

it('a read of what had been overwritten before it began is no answer that an order explains', () => {
  const call = (op: string, val: string, start: number): Call => ({
    asked: { op, key: 'a', version: 1n, holder: undefined },
    val,
    start,
    end: start + 1,
    answer: { val: op === 'read' ? 'old' : val, version: 1n, err: '' },
  });
  const final = [{ val: 'new', version: 1n }, undefined];
  const writes = [call('write', 'old', 0), call('write', 'new', 2)];
  const explained = (read: Call) => explains(new Map(), rules.monotonic, [...writes, read], final);
  expect(explained(call('read', '', 4))).toBe(false);
  expect(explained({ ...call('read', '', 1), end: 4 })).toBe(true);
});

function client(store: Store, rule: Rule) {
  return async ({ holder: token, ...asked }: Asked, val: string): Promise<Response> => {
    const gone = 'gone';
    const holder = async () =>
      token === undefined ? undefined : { key: Buffer.from('unused'), token, gone };
    const lock = rule === rules.holder ? { gone, holder } : undefined;
    return (await handle({ ...asked, val }, { store: over(store, {}), rule, lock })).response;
  };
}

/** The sequential model, written without the code under test: its texts it takes from the rule. */
function apply(model: Map<string, Entry>, rule: Rule, asked: Asked, val: string): Response {
  const { op, key, version, holder } = asked;
  const current = model.get(key);
  const fenced = op === 'write' || (rule.name !== 'equal' && version > 0n);
  if (fenced) {
    if (rule.name === 'holder' && holder === undefined) return refusal('gone');
    const forward = version > 0n && version >= (current?.version ?? 0n);
    const accepted = new Map([
      ['equal', current === undefined || current.version === version],
      ['monotonic', forward],
      ['holder', forward && version === holder],
    ]);
    if (!accepted.get(rule.name))
      return refusal(rule.check(version, current?.version, holder) ?? 'no refusal');
    model.set(key, { val: op === 'write' ? val : current?.val, version });
  }
  const entry = model.get(key);
  if (entry?.val === undefined) return refusal('key not found');
  return { val: entry.val, version: entry.version, err: '' };
}

const refusal = (err: string): Response => ({ val: '', version: -1n, err });

/** One request as it was seen from outside: `start` and `end` are on one clock. */
type Call = {
  asked: Asked;
  val: string;
  start: number;
  end: number;
  answer: Response | undefined;
};

/** Whether the calls, in some order that agrees with the clock, have these answers and leave these entries. */
function explains(
  model: Map<string, Entry>,
  rule: Rule,
  calls: Call[],
  final: (Entry | undefined)[],
): boolean {
  if (calls.length === 0)
    return same(
      KEYS.map((key) => model.get(key)),
      final,
    );
  return calls.some((call) => {
    const rest = calls.filter((other) => other !== call);
    if (rest.some(({ end }) => end < call.start)) return false;
    const next = new Map(model);
    if (!same(apply(next, rule, call.asked, call.val), call.answer)) return false;
    return explains(next, rule, rest, final);
  });
}

function same(a: unknown, b: unknown): boolean {
  const text = (value: unknown) =>
    JSON.stringify(value, (_key, part) => (typeof part === 'bigint' ? `${part}n` : part));
  return text(a) === text(b);
}

function max(a: bigint | undefined, b: bigint): bigint {
  return a !== undefined && a > b ? a : b;
}

/** A corner of a store that many runs share. */
function under(prefix: string, store: Store): Store {
  return over(store, {
    read: (key) => store.read(`${prefix}/${key}`),
    update: (key, decide) => store.update(`${prefix}/${key}`, decide),
  });
}

/**
 * A store with some calls done otherwise. The holder is not passed on: here it is made up, and that
 * the etcd store compares the real one is tested with it.
 */
function over(store: Store, other: Partial<Store>): Store {
  return {
    read: (key) => store.read(key),
    update: (key, decide) => store.update(key, decide),
    list: (limit) => store.list(limit),
    check: () => store.check(),
    close: () => store.close(),
    ...other,
  };
}
