// Where what is measured keeps its files.

import { mkdtemp, rm, statfs } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** Not in the system's folder for such: that is kept in memory more often than the project is. */
export async function temporaryFolder(): Promise<AsyncDisposable & { path: string }> {
  const path = await mkdtemp(fileURLToPath(new URL('../../.cache/bench-', import.meta.url)));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** @throws Error if what is flushed there goes to no disk */
export async function expectDisk(folder: string): Promise<void> {
  if ((await statfs(folder)).type !== TMPFS) return;
  throw new Error(`expected a folder on a disk, to measure flushing: ${folder} is in memory`);
}

/** As Linux numbers it. */
const TMPFS = 0x01021994;
