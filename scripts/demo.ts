// `npm run demo`: a tour in four acts, each a real run that has to end as it is told: the disaster, the
// walk-through of the README, its flaw, and the cure. Exits 0 only if all did.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'commander';
import { play } from './lab/play.js';
import type { Fence } from './lab/storage.js';
import { svg, text } from './lab/timeline/index.js';
import type { Verdict } from './lab/verdict.js';
import { exitCode, interruption } from './lib/interruption.js';
import { Screen } from './lib/screen.js';
import { labels, walkthrough } from './walkthrough.js';

const { walkthrough: only } = new Command('npm run demo --')
  .description('Shows why a lock needs a fencing token, on a private etcd.')
  .option('--walkthrough', 'only the part that is upstream’s')
  .parse()
  .opts<{ walkthrough?: true }>();
const screen = new Screen<(typeof labels)[number]>(process.stdout, labels);
const interrupted = interruption();
const cache = join(import.meta.dirname, '..', '.cache');

try {
  if (only) await walkthrough(screen, interrupted, { flaw: false });
  else await tour();
} catch (error) {
  if (!interrupted.aborted) {
    console.error(`\ndemo: ${(error as Error).message}`);
    process.exit(1);
  }
}
if (!interrupted.aborted && only) screen.narrate('Every line came as expected.');
process.exit(interrupted.aborted ? exitCode(interrupted.reason) : 0);

async function tour(): Promise<void> {
  screen.narrate(
    'Act 1, the disaster. A and B each read a counter, add one and write it back, under a lock. A is\n' +
      'stopped after its read, its lease runs out, B takes its turn, and A comes back. There is no fence.',
  );
  const disaster = await pause('none', { lostUpdates: 1, staleWrite: 'accepted' });
  screen.narrate('Two increments, and the counter says 1: the one of B is lost.');

  screen.narrate(
    'Act 2, the walk-through of etcd’s contrib/lock: storage compares the version of each write.',
  );
  await walkthrough(screen, interrupted, { flaw: true });

  screen.narrate(
    'Act 4, the cure. The rule "monotonic", and as the token the revision of the lock’s key, which\n' +
      'grows from holder to holder. The same as in act 1 happens.',
  );
  const cure = await pause('monotonic', { lostUpdates: 0, staleWrite: 'refused' });
  screen.narrate('What was seen:');
  process.stdout.write(`
  act                     late write   updates lost   next holder
  1  no fence             accepted     ${disaster.lostUpdates}              ${disaster.successor}
  2  equal, lease ID      refused      0              served
  3  the same, once more  -            0              locked out
  4  monotonic, revision  refused      ${cure.lostUpdates}              ${cure.successor}

The pictures of acts 1 and 4 are .cache/demo-none.svg and .cache/demo-monotonic.svg.
All of it and more: npm run lab
`);
}

/** Plays the cause `pause`, shows and draws it, and holds it against what has to come of it. */
async function pause(fence: Fence, expected: Partial<Verdict>): Promise<Verdict> {
  const { history, seen } = await play('pause', { fence, store: 'memory', signal: interrupted });
  process.stdout.write(`\n${text(history, { width: process.stdout.columns ?? 100 })}`);
  mkdirSync(cache, { recursive: true });
  const title = `A is stopped for longer than its lease lives (fence: ${fence})`;
  writeFileSync(join(cache, `demo-${fence}.svg`), svg(history, { title }));
  for (const [name, value] of Object.entries(expected)) {
    const found = seen[name as keyof Verdict];
    if (found !== value)
      throw new Error(`expected ${name} with ${fence} to be ${value}, got ${found}`);
  }
  return seen;
}
