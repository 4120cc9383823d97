// `npm run bench` as its users meet it. What the figures say is not tested: that is for a quiet machine.

import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { Program } from '../lib/program.js';

const root = join(import.meta.dirname, '..', '..');

async function bench(...args: string[]) {
  const script = join(import.meta.dirname, 'main.ts');
  await using program = Program.start('node', ['--import', 'tsx', script, ...args], { cwd: root });
  const { code } = await program.exited;
  return { code, stdout: program.stdout, stderr: program.stderr };
}

test('it prints a line for each figure, and writes the same with machine, versions and date', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'bench-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const json = join(folder, 'not there yet', 'bench.json');
  const { code, stdout, stderr } = await bench('lock', '--scale', '0.01', '--json', json);
  expect([code, stderr]).toEqual([0, '']);
  const number = String.raw`\d+(\.\d+)?`;
  expect(stdout).toMatch(
    new RegExp(
      `lock \\+ unlock, uncontended +${number} ms +${number} x the two calls \\(.*at most 1.1`,
    ),
  );
  const { date, machine, versions, scale, rows } = JSON.parse(await readFile(json, 'utf8'));
  expect(new Date(date).getTime()).toBeLessThanOrEqual(Date.now());
  expect(machine.cores).toBeGreaterThan(0);
  expect(versions).toEqual({
    node: process.version,
    etcd: expect.stringMatching(/^\d+\.\d+\.\d+$/),
  });
  expect(scale).toBe(0.01);
  expect(rows).toHaveLength(stdout.match(/ ms /g)?.length ?? 0);
  expect(rows[0]).toMatchObject({ case: 'lock', unit: 'ms', against: { aim: { atMost: 1.1 } } });
});

test('what it cannot do is refused in one line', async () => {
  for (const args of [['none'], ['--scale', '0']]) {
    const { code, stdout, stderr } = await bench(...args);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^error: .*\n$/);
  }
});
