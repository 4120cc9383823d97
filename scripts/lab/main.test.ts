// `npm run lab` as its users meet it. All causes are played by `npm run lab -- all`.

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { Program } from '../lib/program.js';
import { appliesTo, type Cause, type CauseName, causes } from './causes.js';
import { check } from './checker.js';
import { decodeEvent } from './history.js';
import { verdict } from './verdict.js';

const root = join(import.meta.dirname, '..', '..');

async function lab(...args: string[]) {
  const script = join(import.meta.dirname, 'main.ts');
  await using program = Program.start('node', ['--import', 'tsx', script, ...args], { cwd: root });
  const { code } = await program.exited;
  return { code, stdout: program.stdout, stderr: program.stderr };
}

test('without a cause it lists them all', async () => {
  const { code, stdout } = await lab();
  expect(code).toBe(0);
  for (const [name, { about }] of Object.entries(causes)) {
    expect(stdout).toContain(`${name.padEnd(10)} ${about}\n`);
  }
});

test('what it cannot do is refused in one line', async () => {
  for (const args of [['none'], ['pause', '--fence', 'x'], ['soak', '--seed', '-1']]) {
    const { code, stdout, stderr } = await lab(...args);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^error: .*\n$/);
  }
});

test('the README names every cause, and what comes of it under each rule', async () => {
  const readme = await readFile(join(root, 'README.md'), 'utf8');
  const rows = [...readme.matchAll(/^\| `(\w+)` \| .* \| (.*) \| (.*) \| (.*) \| (.*) \|$/gm)];
  const words = { none: 0, equal: 1, monotonic: 2, holder: 3 };
  for (const [name, { expect: expected }] of Object.entries<Cause>(causes)) {
    const [first] = rows.filter(([, named]) => named === name);
    if (/crash|leader|freeze|release|failover/.test(name)) continue;
    for (const [fence, i] of Object.entries(words)) {
      const { lostUpdates, staleWrite, successor } = expected(
        fence as keyof typeof words,
        'memory',
      );
      const damage = lostUpdates ? 'update lost' : 'held';
      const word = successor === 'locked out' ? 'B shut out' : damage;
      expect([name, fence, first?.slice(2)[i]]).toEqual([name, fence, word]);
      expect(staleWrite).toBe(word === 'held' ? 'refused' : 'accepted');
    }
  }
  const ours = (Object.keys(causes) as CauseName[]).filter((name) => appliesTo(name, 'mutex'));
  expect(new Set(rows.map(([, name]) => name))).toEqual(new Set(ours));
});

test('it plays a cause under one rule, tells it as a story, and keeps the history and a picture', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'lab-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const files = { timeline: join(folder, 'run.svg'), history: join(folder, 'run.jsonl') };
  const options = Object.entries(files).flatMap(([name, file]) => [`--${name}`, file]);
  const { code, stdout, stderr } = await lab('revoke', '--fence', 'monotonic', ...options);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/monotonic +0 +refused +served .* yes/);
  expect(stdout).toMatch(/write 1 #\d+ ─+┤ ✗ stale token/);
  expect(await readFile(files.timeline, 'utf8')).toMatch(/^<svg .*bounced: stale token/s);
  const lines = (await readFile(files.history, 'utf8')).trimEnd().split('\n');
  const history = lines.map(decodeEvent);
  expect(verdict(history)).toMatchObject(causes.revoke.expect('monotonic'));
  expect(check(history)).toEqual([]);
});
