// Handing a lock over: from the call that releases it to the grant of the next one who waits, against a
// raw put by the same process, in turn. Then how many hand-overs a second there can be when all want
// the lock again at once. A process each for up to ten contenders: two cores do not carry a hundred.

import { fileURLToPath } from 'node:url';
import { type Etcd, startEtcd } from '../lib/etcd.js';
import { Peer } from '../lib/peer.js';
import { Program } from '../lib/program.js';
import type { Bench, Case, Row } from './case.js';
import { type ContenderOptions, contend, handOvers, rawPut, type Turn } from './contender.js';
import { rawHandOver } from './handover-floor.js';
import { inTurn, median, quantile, ratio } from './measure.js';

export const handover: Case = {
  about: 'from a release to the next grant, among contenders for one lock',
  async *run(bench) {
    await using server = await startEtcd();
    yield await floor(server, bench);
    for (const count of [2, 10, 100]) {
      yield* measure(bench, `${count} contenders`, (load) => inOneProcess(server, count, load));
    }
    for (const count of [2, 10]) {
      yield* measure(bench, `${count} processes`, (load) => inProcesses(server, count, load));
    }
  },
};

/** How contenders are to behave, and who hears of their turns. */
type Load = Required<ContenderOptions> & { readonly onTurn: (turn: Turn) => void };
type Contention = (load: Load) => Promise<void>;

/** Raw puts in whose time one who left is back in the queue. */
const PUTS = 15;
/** Turns of each process until Node has compiled what is measured. */
const WARM_UP = 500;
/**
 * Milliseconds. etcd serves watches that it has set aside every 100: of those who wait for that, three
 * in four wait longer than this.
 */
const STALL = 25;

/** How much of a hand-over is etcd's: the same calls, raw. */
async function floor({ endpoints }: Etcd, { scale, signal }: Bench): Promise<Row> {
  await using peer = await Peer.connect(endpoints);
  const session = await peer.session();
  const contestants = {
    raw: () => rawHandOver(peer.etcd),
    put: () => rawPut(session),
  };
  const rounds = Math.ceil(300 * scale);
  const warmUp = Math.ceil(WARM_UP * scale);
  const { raw, put } = await inTurn(contestants, { rounds, warmUp, signal });
  return {
    what: 'hand-over, the same by raw calls, p50',
    value: median(raw),
    unit: 'ms',
    against: { what: 'a raw put', value: median(put), ratio: ratio(raw, put) },
  };
}

async function* measure(bench: Bench, who: string, contention: Contention): AsyncIterable<Row> {
  const paced = await turnsOf(contention, `${who}, paced`, PUTS, 120, bench);
  const times = handOvers(paced);
  const puts = paced.slice(0, -1).map(({ put }) => put);
  const row = (part: number, aim?: { atMost: number }) => {
    const value = quantile(times, part);
    const theirs = quantile(puts, part);
    const quotient = part === 0.5 ? ratio(times, puts) : value / theirs;
    const against = { what: 'a raw put', value: theirs, ratio: quotient, ...(aim && { aim }) };
    return { what: `hand-over, ${who}, p${part * 100}`, value, unit: 'ms', against } as const;
  };
  yield row(0.5, { atMost: 2.5 });
  yield row(0.99);
  const [slowest, limit] = [Math.max(...times), Math.max(...puts) + STALL];
  yield {
    what: `hand-over, ${who}, the slowest`,
    value: slowest,
    unit: 'ms',
    against: {
      what: `the slowest put and ${STALL} ms`,
      value: limit,
      ratio: slowest / limit,
      aim: { atMost: 1 },
    },
  };

  const busy = await turnsOf(contention, `${who}, busy`, 0, 300, bench);
  const count = handOvers(busy).length;
  const first = busy[0]?.granted ?? Number.NaN;
  const last = busy.at(-1)?.granted ?? Number.NaN;
  yield { what: `hand-overs, ${who}`, value: (count * 1000) / (last - first), unit: '/s' };
}

/** So many turns in the order of their grants, from when all contenders have had their warm-up. */
async function turnsOf(
  contention: Contention,
  name: string,
  puts: number,
  count: number,
  { scale, signal }: Bench,
): Promise<Turn[]> {
  let turns: Turn[] = [];
  const enough = new AbortController();
  const onTurn = (turn: Turn): void => {
    if (turn.warm) turns.push(turn);
    else turns = [];
    if (turns.length > count * scale) enough.abort();
  };
  const ends = AbortSignal.any([signal, enough.signal]);
  await contention({ name, puts, warmUp: Math.ceil(WARM_UP * scale), signal: ends, onTurn });
  signal.throwIfAborted();
  return turns.sort((a, b) => a.granted - b.granted);
}

async function inOneProcess({ endpoints }: Etcd, count: number, load: Load): Promise<void> {
  await using peer = await Peer.connect(endpoints);
  const sessions = await Promise.all(Array.from({ length: count }, () => peer.session()));
  const options = { ...load, warmUp: Math.ceil(load.warmUp / count) };
  await Promise.all(sessions.map((session) => contend(session, options, load.onTurn)));
}

/** They begin as each of them comes up: a turn counts from when all have had one. */
async function inProcesses({ endpoints }: Etcd, count: number, load: Load): Promise<void> {
  const worker = fileURLToPath(new URL('handover-worker.ts', import.meta.url));
  const options = [load.name, `${load.puts}`, `${load.warmUp}`];
  const args = ['--import', 'tsx', worker, endpoints[0] ?? '', ...options];
  const waitedFor = new Set(Array.from({ length: count }, (_, i) => i));
  const programs = Array.from({ length: count }, (_, i) =>
    Program.start(process.execPath, args, {
      onLine(line) {
        waitedFor.delete(i);
        const turn = JSON.parse(line);
        if (waitedFor.size === 0) load.onTurn({ ...turn, token: BigInt(turn.token) });
      },
    }),
  );
  try {
    const ended = programs.map(async (program) => {
      const { code } = await program.exited;
      if (code !== 0) throw new Error(`a contender failed: ${program.stderr}`);
    });
    await Promise.race([aborted(load.signal), ...ended]);
    for (const program of programs) program.end();
    await Promise.all(ended);
  } finally {
    await Promise.all(programs.map((program) => program[Symbol.asyncDispose]()));
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) =>
    signal.addEventListener('abort', () => resolve(), { once: true }),
  );
}
