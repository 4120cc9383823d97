// `npm run lab`: plays the causes of a lease that falsely expires, each for real, with and without a
// fence, and shows what each did to the data. Ends with 0 when all came as it has to.

import { writeFileSync } from 'node:fs';
import { bulkhead } from 'cockatiel';
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { exitCode, interruption } from '../lib/interruption.js';
import { type Cause, type CauseName, causes, expected, obstacleTo } from './causes.js';
import { check, lostUpdates, shortestExplanation } from './checker.js';
import { type Event, encodeEvent } from './history.js';
import { type LockName, locks, serverOf } from './locks.js';
import { play } from './play.js';
import { soak } from './soak.js';
import { KEY, Stage } from './stage.js';
import { type Fence, fences, type StoreKind, storeKinds } from './storage.js';
import { svg, text } from './timeline/index.js';
import type { Verdict } from './verdict.js';

type Flags = {
  fence?: Fence;
  lock?: LockName;
  store: StoreKind;
  timeline?: string;
  history?: string;
  minutes: number;
  seed: number;
};

/** What the table shows of a verdict, and how wide. */
const COLUMNS = [
  ['fence', 11],
  ['lost updates', 14],
  ['late write', 12],
  ['successor', 12],
  ['taken', 10],
  ['A knew', 10],
  ['late by', 9],
  ['B had it', 10],
  ['two at once', 13],
  ['as it has to be', 0],
] as const;

/** Milliseconds that etcd's watch may be late on a busy machine. */
const LAG = 2000;

/** Each run has processes of its own, and mostly waits for a lease to end. */
const stages = bulkhead(2, Number.POSITIVE_INFINITY);

const names = Object.keys(causes) as CauseName[];
const interrupted = interruption();

const code = await new Promise<number>((resolve) =>
  new Command('npm run lab --')
    .description('Plays the ways in which a lease falsely expires, with and without a fence.')
    .addArgument(
      new Argument('[cause]', 'one of them; without: lists them').choices([
        ...names,
        'all',
        'soak',
      ]),
    )
    .addOption(new Option('--fence <rule>', 'only this rule').choices(Object.keys(fences)))
    .addOption(
      new Option('--lock <name>', 'this lock in place of ours').choices(Object.keys(locks)),
    )
    .addOption(new Option('--store <kind>', 'of storage').choices(storeKinds).default('memory'))
    .option('--timeline <file.svg>', 'draw the run, with --fence', svgFile)
    .option('--history <file>', 'write down the run, with --fence: a line of JSON for each event')
    .option('--minutes <number>', 'of the soak', positive, 1)
    .option('--seed <number>', 'of the soak: which faults, and when', positive, 1)
    .action((cause: CauseName | 'all' | 'soak' | undefined, flags: Flags) =>
      (cause === 'soak' ? endure(flags) : run(cause, flags)).then(resolve, fail),
    )
    .parse(),
);
process.exit(interrupted.aborted ? exitCode(interrupted.reason) : code);

/** Being told to end ends all waiting; everything has been undone by then. */
function fail(error: unknown): never {
  if (interrupted.aborted) process.exit(exitCode(interrupted.reason));
  throw error;
}

async function run(cause: CauseName | 'all' | undefined, flags: Flags): Promise<number> {
  if (cause === undefined) {
    for (const name of names) console.log(`${name.padEnd(10)} ${causes[name].about}`);
    console.log(
      `\nPlay one with: npm run lab -- ${names[0]}; all of them with: npm run lab -- all`,
    );
    return 0;
  }
  let well = true;
  for (const name of cause === 'all' ? names : [cause]) {
    const { lock: own = 'mutex' }: Cause = causes[name];
    const { lock = own } = flags;
    const obstacle = obstacleTo(name, lock);
    if (obstacle) {
      console.log(`\n${name} is not played: ${obstacle}`);
      well &&= cause === 'all';
      continue;
    }
    console.log(`\n${name}: ${causes[name].about}\n`);
    row(COLUMNS.map(([title]) => title));
    const runs = (flags.fence ? [flags.fence] : (Object.keys(fences) as Fence[])).map((fence) => ({
      fence,
      played: stages.execute(() =>
        play(name, { fence, store: flags.store, lock, signal: interrupted }),
      ),
    }));
    const over = Promise.allSettled(runs.map(({ played }) => played));
    try {
      for (const { fence, played } of runs) {
        const { history, seen } = await played;
        const wanted = expected(name, lock, fence, flags.store);
        const as = Object.entries(wanted).every(
          ([key, value]) => seen[key as keyof Verdict] === value,
        );
        well &&= as;
        row(cells(fence, seen, as));
        if (flags.fence) show(history, { name, fence, lock, ...flags });
      }
    } finally {
      // One that failed is told when the others have been cleared away.
      await over;
    }
  }
  return well ? 0 : 1;
}

/** Without a fence it is well to find lost updates, with one not to. */
async function endure({ fence = 'monotonic', store, minutes, seed, history: file }: Flags) {
  console.log(`soak: ${minutes} min, seed ${seed}, fence ${fence}, store ${store}`);
  await using stage = await Stage.open({ fence, store });
  await soak(stage, { minutes, seed, store, signal: interrupted });
  await stage.complete();
  const { history } = stage;
  const [lost, violations] = [lostUpdates(history, KEY), check(history, undefined, LAG)];
  const count = (what: Event['what']) => history.filter((event) => event.what === what).length;
  const kinds = new Set(violations.map(({ kind }) => kind));
  console.log(
    `${count('holds')} times the lock was held, ${count('fault')} faults, ${count('decided')} decisions\n` +
      `lost updates: ${lost.length}; violations: ${violations.length} ${[...kinds].join(', ')}`,
  );
  const found = lost.length + violations.length > 0;
  if (found) for (const line of shortestExplanation(violations, history)) console.log(`  ${line}`);
  const kept = file ?? (found && fence !== 'none' ? `soak-${seed}.jsonl` : undefined);
  if (kept) {
    write(kept, history);
    console.log(`the history is in ${kept}`);
  }
  return found && fence !== 'none' ? 1 : 0;
}

function positive(text: string): number {
  const number = Number(text);
  if (number > 0) return number;
  throw new InvalidArgumentError('expected a number above 0');
}

function svgFile(name: string): string {
  if (name.endsWith('.svg')) return name;
  throw new InvalidArgumentError('expected a name that ends in .svg');
}

/** The run itself: in the terminal, what is wrong with it, and the files that were asked for. */
function show(
  history: readonly Event[],
  run: { name: CauseName; fence: Fence; lock: LockName } & Pick<Flags, 'timeline' | 'history'>,
): void {
  const server = serverOf(run.lock);
  console.log(`\n${text(history, { width: process.stdout.columns ?? 100, server })}`);
  const violations = check(history);
  for (const { kind, explanation } of violations) console.log(`${kind}: ${explanation}`);
  for (const line of shortestExplanation(violations, history)) console.log(`  ${line}`);
  const title = `${causes[run.name].about} (fence: ${run.fence})`;
  if (run.timeline) writeFileSync(run.timeline, svg(history, { title, server }));
  if (run.history) write(run.history, history);
}

function write(file: string, history: readonly Event[]): void {
  writeFileSync(file, history.map((event) => `${encodeEvent(event)}\n`).join(''));
}

function cells(fence: Fence, seen: Verdict, as: boolean): string[] {
  return [
    fence,
    `${seen.lostUpdates}`,
    seen.staleWrite ?? '-',
    seen.successor,
    seconds(seen.takenAfter),
    seconds(seen.noticedAfter, true),
    seconds(seen.noticedLate),
    seconds(seen.succeededAfter),
    seen.together ? 'yes' : 'no',
    as ? 'yes' : 'NO',
  ];
}

function row(cells: readonly string[]): void {
  console.log(`  ${COLUMNS.map(([, width], i) => (cells[i] ?? '').padEnd(width)).join('')}`);
}

function seconds(ms: number | undefined, signed = false): string {
  if (ms === undefined) return '-';
  return `${signed && ms >= 0 ? '+' : ''}${(ms / 1000).toFixed(2)} s`;
}
