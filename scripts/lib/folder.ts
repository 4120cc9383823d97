// A temporary folder. Like a child it does not outlive this process.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removeAtEnd } from './last-resort.js';

export interface Folder extends AsyncDisposable {
  readonly path: string;
}

/** A new one, its path being `prefix` and something that makes it unique. */
export async function temporaryFolder(
  prefix = join(tmpdir(), 'etcd-fenced-lock-'),
): Promise<Folder> {
  const path = await mkdtemp(prefix);
  const forget = removeAtEnd(path);
  return {
    path,
    async [Symbol.asyncDispose]() {
      await rm(path, { recursive: true, force: true });
      forget();
    },
  };
}
