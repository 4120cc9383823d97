// For tests of whole scripts: what a program leaves behind. Its temporary folders are told by lying
// in a folder made for it, its processes by a variable in their environment (where /proc shows it).

import { randomUUID } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface Trace extends AsyncDisposable {
  /** For the environment of the program. */
  readonly env: Record<string, string>;
  /** The folders and command lines that are there now. */
  leftovers(): Promise<string[]>;
}

export async function trace(): Promise<Trace> {
  const folder = await mkdtemp(join(tmpdir(), 'trace-'));
  const mark = randomUUID();
  return {
    env: { TMPDIR: folder, LEFTOVER_OF: mark, TSX_DISABLE_CACHE: '1' },
    async leftovers() {
      return [...(await readdir(folder)), ...(await processes(mark))];
    },
    async [Symbol.asyncDispose]() {
      await rm(folder, { recursive: true });
    },
  };
}

async function processes(mark: string): Promise<string[]> {
  const names = await readdir('/proc').catch(() => []);
  const found = names
    .filter((name) => /^\d+$/.test(name))
    .map(async (pid) => {
      const environment = await readFile(`/proc/${pid}/environ`, 'utf8');
      if (!environment.includes(mark)) return [];
      return [(await readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ')];
    });
  // A process may end meanwhile, or be another user's.
  return (await Promise.all(found.map((reading) => reading.catch(() => [])))).flat();
}
