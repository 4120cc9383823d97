// Where what is measured keeps its files.

import { statfs } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import * as folder from '../lib/folder.js';

/** Not in the system's folder for such: that is kept in memory more often than the project is. */
export function temporaryFolder(): Promise<folder.Folder> {
  return folder.temporaryFolder(fileURLToPath(new URL('../../.cache/bench-', import.meta.url)));
}

/** @throws Error if what is flushed there goes to no disk */
export async function expectDisk(folder: string): Promise<void> {
  if ((await statfs(folder)).type !== TMPFS) return;
  throw new Error(`expected a folder on a disk, to measure flushing: ${folder} is in memory`);
}

/** As Linux numbers it. */
const TMPFS = 0x01021994;
