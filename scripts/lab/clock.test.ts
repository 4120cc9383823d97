import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { Program } from '../lib/program.js';
import { Clock, libfaketime } from './clock.js';

test.skipIf(libfaketime() === undefined)(
  "a process's wall clock is set while it runs, and its monotonic clock is not",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'clock-test-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const clock = new Clock(join(folder, 'clock'));
    const script = "process.stdin.on('data', () => console.log(Date.now(), performance.now()))";
    await using program = Program.start(process.execPath, ['-e', script], { env: clock.env });
    for (const seconds of [0, 3600, -3600, 0]) {
      clock.set(seconds);
      program.write('\n');
      const [wall = 0, monotonic = 0] = ((await program.nextLine()) ?? '').split(' ').map(Number);
      expect(Math.abs((wall - Date.now()) / 1000 - seconds)).toBeLessThan(60);
      expect(Math.abs(monotonic - performance.now()) / 1000).toBeLessThan(60);
    }
  },
);
