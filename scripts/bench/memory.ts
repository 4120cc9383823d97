// What is kept in memory: all that a program has of the machine, beside an idle Node, and what the
// library has on its heap. The latter in a process of its own (memory-library.ts), after garbage
// collection, so that neither the benchmarks nor what Node has set aside count.

import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Etcd, startEtcd } from '../lib/etcd.js';
import { Program, startClient, startStorage } from '../lib/program.js';
import type { Bench, Case, Row } from './case.js';

export const memory: Case = {
  about:
    'idle programs, many waiters in one process, many lock cycles (--scale 10: 100,000 of them)',
  async *run(bench) {
    await using etcd = await startEtcd();
    yield* programs(etcd);
    yield* waiters(etcd, bench);
    yield* cycles(etcd, bench);
  },
};

async function* programs(etcd: Etcd): AsyncIterable<Row> {
  await using node = Program.start(process.execPath, ['-e', 'setInterval(console.log, 1e6, 0)']);
  await using storage = await startStorage();
  await using client = startClient(1, ['--endpoints', etcd.endpoints.join()]);
  await client.line('please manually revoke the lease');
  const floor = await resident(node);
  for (const [what, program] of [
    ['storage, idle', storage],
    ['client 1, waiting', client],
  ] as const) {
    const value = await resident(program);
    yield {
      what,
      value,
      unit: 'MiB',
      against: { what: 'node', value: floor, ratio: value / floor },
    };
  }
}

async function* waiters(etcd: Etcd, { scale, signal }: Bench): AsyncIterable<Row> {
  const count = Math.ceil(1000 * scale);
  const [none = 0, half = 0, all = 0] = await library('waiters', count, etcd, signal);
  const [first, second] = [(half - none) / (count / 2), (all - half) / (count / 2)];
  yield { what: `${count} sessions that wait, together`, value: (all - none) / 1024, unit: 'MiB' };
  yield {
    what: `one of the second half of them`,
    value: second,
    unit: 'KiB',
    against: {
      what: 'one of the first half',
      value: first,
      ratio: second / first,
      aim: { atMost: 1.2 },
    },
  };
}

async function* cycles(etcd: Etcd, { scale, signal }: Bench): AsyncIterable<Row> {
  const count = Math.ceil(10_000 * scale);
  const [before = 0, after = 0] = await library('cycles', count, etcd, signal);
  yield {
    what: `heap after ${count} times lock + unlock`,
    value: after / 1024,
    unit: 'MiB',
    against: {
      what: 'before them',
      value: before / 1024,
      ratio: after / before,
      aim: { atMost: 1.02 },
    },
  };
}

/** The figures that it prints, in KiB. */
async function library(
  what: 'waiters' | 'cycles',
  count: number,
  { endpoints }: Etcd,
  signal: AbortSignal,
): Promise<number[]> {
  const path = fileURLToPath(new URL('memory-library.ts', import.meta.url));
  const args = ['--expose-gc', '--import', 'tsx', path, what, `${count}`, endpoints.join()];
  await using program = Program.start(process.execPath, args);
  const kill = () => program.signal('SIGKILL');
  signal.addEventListener('abort', kill);
  try {
    const { code } = await program.exited;
    signal.throwIfAborted();
    if (code !== 0) throw new Error(`memory-library.ts ${what} failed:\n${program.stderr}`);
    return program.stdout.trim().split('\n').map(Number);
  } finally {
    signal.removeEventListener('abort', kill);
  }
}

/** MiB. */
async function resident({ pid }: Program): Promise<number> {
  const { stdout } = await promisify(execFile)('ps', ['-o', 'rss=', '-p', `${pid}`]);
  return Number(stdout) / 1024;
}
