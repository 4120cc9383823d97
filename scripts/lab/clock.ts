// The wall clock of one process, set while it runs, by libfaketime; its monotonic clock stays right, as
// when somebody sets a machine's clock. Not for etcd and redis-server: Go asks the kernel for the time
// without the C library, and the redis-server of Debian does not start with libfaketime.

import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export class Clock {
  readonly #file: string;

  /** `file` is the clock's own; it says what the clock is off by. */
  constructor(file: string) {
    this.#file = file;
    this.set(0);
  }

  /** What the process has to be started with. */
  get env(): Record<string, string> {
    const library = libfaketime();
    if (library === undefined) throw new Error(MISSING);
    return {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: this.#file,
      FAKETIME_NO_CACHE: '1',
      DONT_FAKE_MONOTONIC: '1',
      NO_FAKE_STAT: '1',
    };
  }

  /** Seconds that it is ahead from now on; negative: behind. */
  set(seconds: number): void {
    writeFileSync(this.#file, `${seconds < 0 ? '' : '+'}${seconds}\n`);
  }
}

export const MISSING = 'there is no libfaketime; Debian and Ubuntu have it in the package faketime';

/** Where it is, for programs with threads; undefined where there is none. */
export function libfaketime(): string | undefined {
  const folders = ['/usr/lib', '/usr/local/lib'].flatMap((folder) => [
    folder,
    ...entries(folder).map((name) => join(folder, name)),
  ]);
  return folders
    .map((folder) => join(folder, 'faketime'))
    .filter((folder) => entries(folder).includes(LIBRARY))
    .map((folder) => join(folder, LIBRARY))[0];
}

const LIBRARY = 'libfaketimeMT.so.1';

function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
