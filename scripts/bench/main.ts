// `npm run bench`: says what the project costs, against the floor beneath it and what a user would take
// instead, measured in the same run. Prints a table, and writes the same as JSON.

import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { dirname } from 'node:path';
import { Argument, Command, InvalidArgumentError } from 'commander';
import { runEtcdctl } from '../lib/etcd.js';
import { exitCode, interruption } from '../lib/interruption.js';
import type { Case, Row } from './case.js';
import { handover } from './handover.js';
import { lock } from './lock.js';
import { memory } from './memory.js';
import { startup } from './startup.js';
import { storage } from './storage.js';
import { growth } from './storage-growth.js';
import { takeover } from './takeover.js';
import { waiters } from './waiters.js';

const cases = {
  lock,
  handover,
  takeover,
  waiters,
  storage,
  growth,
  startup,
  memory,
} satisfies Record<string, Case>;

type CaseName = keyof typeof cases;
type Flags = { scale: number; json: string };

const names = Object.keys(cases) as CaseName[];
const interrupted = interruption();

await new Command('npm run bench --')
  .description('Measures what the project costs, against the floor beneath it, in one run.')
  .addArgument(new Argument('[cases...]', 'default: all of them').choices(names))
  .option('--scale <number>', 'how much to measure: 0.1 is a look', positive, 1)
  .option('--json <file>', 'where the figures go', '.cache/bench.json')
  .action(run)
  .parseAsync()
  .catch((error) => {
    if (!interrupted.aborted) throw error;
  });
process.exit(interrupted.aborted ? exitCode(interrupted.reason) : 0);

async function run(chosen: CaseName[], { scale, json }: Flags): Promise<void> {
  const rows: (Row & { case: CaseName })[] = [];
  for (const name of chosen.length > 0 ? chosen : names) {
    console.log(`\n${name}: ${cases[name].about}\n`);
    for await (const row of cases[name].run({ scale, signal: interrupted })) {
      console.log(line(row));
      rows.push({ case: name, ...row });
    }
  }
  mkdirSync(dirname(json), { recursive: true });
  writeFileSync(json, `${JSON.stringify({ ...(await machine()), scale, rows }, null, 2)}\n`);
  console.log(`\nthe figures are in ${json}`);
}

async function machine() {
  const etcd = /\d+\.\d+\.\d+/.exec(await runEtcdctl(['version']))?.[0];
  return {
    date: new Date().toISOString(),
    machine: {
      cpu: cpus()[0]?.model,
      cores: cpus().length,
      memory: `${Math.round(totalmem() / 2 ** 30)} GiB`,
      system: `${process.platform} ${release()} ${process.arch}`,
    },
    versions: { node: process.version, etcd },
  };
}

function line({ what, value, unit, against }: Row): string {
  const ours = `  ${what.padEnd(52)} ${figure(value, unit)}`;
  if (!against) return ours;
  const { aim, ratio } = against;
  const theirs = `${ours}  ${ratio.toFixed(2).padStart(6)} x ${against.what} (${figure(against.value, unit).trim()})`;
  if (!aim) return theirs;
  const [reached, words] =
    'atMost' in aim
      ? [ratio <= aim.atMost, `at most ${aim.atMost}`]
      : [ratio >= aim.atLeast, `at least ${aim.atLeast}`];
  return `${theirs}: ${reached ? 'as it should be' : 'MISSED'}, ${words}`;
}

function figure(value: number, unit: Row['unit']): string {
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 3;
  return `${value.toFixed(digits).padStart(8)} ${unit}`;
}

function positive(text: string): number {
  const number = Number(text);
  if (number > 0) return number;
  throw new InvalidArgumentError('expected a number above 0');
}
