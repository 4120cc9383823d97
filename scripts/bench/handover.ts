// Handing a lock over: from the call that releases it to the grant of the next one who waits, against a
// raw put by the same process, in turn. Before that, how many hand-overs a second there can be when all
// want the lock again at once.

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { Mutex } from '../../client/concurrency/index.js';
import { type Etcd, startEtcd } from '../lib/etcd.js';
import { Peer } from '../lib/peer.js';
import { Program, type Stream } from '../lib/program.js';
import type { Bench, Case, Row } from './case.js';
import { type ContenderOptions, contend, handOvers, type Turn } from './contender.js';
import { temporaryFolder } from './folder.js';
import { quantile, ratio } from './measure.js';
import { RawLock } from './raw-lock.js';

export const handover: Case = {
  about: 'from a release to the next grant, among contenders for one lock',
  async *run(bench) {
    await using server = await startEtcd();
    for (const count of [2, 10, 100]) {
      yield* measure(bench, `${count} contenders`, (load) => inOneProcess(server, count, load));
    }
    await using folder = await temporaryFolder();
    const worker = await buildWorker(folder.path);
    for (const count of [2, 10, 100]) {
      yield* measure(bench, `${count} processes`, (load) =>
        inProcesses(server, worker, count, load),
      );
    }
  },
};

const locks = { raw: RawLock, mutex: Mutex };

/** What they contend for, how they are to behave, and who hears of their turns. */
type Load = Required<ContenderOptions> & {
  readonly kind: keyof typeof locks;
  readonly name: string;
  readonly onTurn: (turn: Turn) => void;
};
type Contention = (load: Load) => Promise<void>;

/** Raw puts in whose time one who left is back in the queue. */
const PUTS = 15;
/** Turns of each process until Node has compiled what is measured. */
const WARM_UP = 500;
/** With more processes than this there is not the time for the whole warm-up of each. */
const WARM = 4;
/** Hand-overs that are counted: when all want the lock again at once, and at a pace. */
const [BUSY, PACED] = [300, 120];
/**
 * Milliseconds. etcd serves watches that it has set aside every 100: of those who wait for that, three
 * in four wait longer than this.
 */
const STALL = 25;

async function* measure(bench: Bench, who: string, contention: Contention): AsyncIterable<Row> {
  const floor = await turnsOf(contention, 'raw', who, bench);
  yield comparedWithPuts(`hand-over by raw calls, ${who}`, floor.paced, 0.5);
  const { busy, paced } = await turnsOf(contention, 'mutex', who, bench);
  yield comparedWithPuts(`hand-over, ${who}`, paced, 0.5, { atMost: 2.5 });
  yield comparedWithPuts(`hand-over, ${who}`, paced, 0.99);
  const times = handOvers(paced);
  const puts = putsOf(paced);
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
  const [first, last] = [busy[0]?.granted ?? Number.NaN, busy.at(-1)?.granted ?? Number.NaN];
  const perSecond = ((busy.length - 1) * 1000) / (last - first);
  yield { what: `hand-overs, ${who}`, value: perSecond, unit: '/s' };
}

/** Of the hand-overs and the puts, that so large a part of all took no longer. */
function comparedWithPuts(
  what: string,
  turns: readonly Turn[],
  part: number,
  aim?: { atMost: number },
): Row {
  const [times, puts] = [handOvers(turns), putsOf(turns)];
  const [value, theirs] = [quantile(times, part), quantile(puts, part)];
  const quotient = part === 0.5 ? ratio(times, puts) : value / theirs;
  return {
    what: `${what}, p${part * 100}`,
    value,
    unit: 'ms',
    against: { what: 'a raw put', value: theirs, ratio: quotient, ...(aim && { aim }) },
  };
}

/** The put before each hand-over. */
function putsOf(turns: readonly Turn[]): number[] {
  return turns.slice(0, -1).map(({ put }) => put);
}

/**
 * In the order of their grants: the last turns before the first contender has had its warm-up, and
 * turns from when all of them have had it.
 */
async function turnsOf(
  contention: Contention,
  kind: Load['kind'],
  who: string,
  { scale, signal }: Bench,
): Promise<{ busy: Turn[]; paced: Turn[] }> {
  const turns: Turn[] = [];
  const enough = new AbortController();
  let paced = 0;
  const onTurn = (turn: Turn): void => {
    turns.push(turn);
    paced = turn.warm ? paced + 1 : 0;
    if (paced > PACED * scale) enough.abort();
  };
  const warmUp = Math.ceil((WARM_UP + BUSY) * scale);
  const ends = AbortSignal.any([signal, enough.signal]);
  const name = `${who}, ${kind}`;
  await contention({ kind, name, puts: PUTS, warmUp, signal: ends, onTurn });
  signal.throwIfAborted();
  turns.sort((a, b) => a.granted - b.granted);
  // All of them have to exclude each other.
  handOvers(turns);
  const warm = turns.findIndex((turn) => turn.warm);
  return {
    busy: turns.slice(Math.max(0, warm - 1 - Math.ceil(BUSY * scale)), warm),
    paced: turns.slice(turns.findLastIndex((turn) => !turn.warm) + 1),
  };
}

async function inOneProcess(
  { endpoints }: Etcd,
  count: number,
  { kind, name, onTurn, ...load }: Load,
): Promise<void> {
  await using peer = await Peer.connect(endpoints);
  const sessions = await Promise.all(Array.from({ length: count }, () => peer.session()));
  const options = { ...load, warmUp: Math.ceil(load.warmUp / count) };
  await Promise.all(
    sessions.map((session) => contend(session, new locks[kind](session, name), options, onTurn)),
  );
}

/** In one file of JavaScript: to compile a hundred times what a hundred processes run takes minutes. */
async function buildWorker(outDir: string): Promise<string> {
  const ssr = fileURLToPath(new URL('handover-worker.ts', import.meta.url));
  await build({ configFile: false, logLevel: 'warn', build: { ssr, outDir, target: 'node20' } });
  return join(outDir, 'handover-worker.js');
}

/** All contend from when the last of them is ready. */
async function inProcesses(
  { endpoints }: Etcd,
  worker: string,
  count: number,
  { kind, name, puts, warmUp, signal, onTurn }: Load,
): Promise<void> {
  const turns = Math.ceil(warmUp * Math.min(1, WARM / count));
  const args = [worker, endpoints[0] ?? '', kind, name, `${puts}`, `${turns}`];
  const onLine = (line: string, stream: Stream) => {
    if (stream === 'stderr' || line === 'ready') return;
    const turn = JSON.parse(line);
    onTurn({ ...turn, token: BigInt(turn.token) });
  };
  const programs: Program[] = [];
  try {
    // Not all at once: each has five seconds to connect.
    while (programs.length < count) {
      signal.throwIfAborted();
      const wave = Array.from({ length: Math.min(4, count - programs.length) }, () =>
        Program.start(process.execPath, args, { onLine }),
      );
      programs.push(...wave);
      await Promise.all(wave.map((program) => program.line('ready')));
    }
    const ended = programs.map(async (program) => {
      const { code } = await program.exited;
      if (code !== 0) throw new Error(`a contender failed: ${program.stderr}`);
    });
    for (const program of programs) program.write('go\n');
    await Promise.race([aborted(signal), ...ended]);
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
