#!/usr/bin/env node
// `client <1|2>`: options, signals and exit codes; the flow is in run.ts.

import { readFileSync } from 'node:fs';
import module, { createRequire } from 'node:module';
import { constants, homedir } from 'node:os';
import { join } from 'node:path';
import { env } from 'node:process';
import { Command, InvalidArgumentError, Option } from 'commander';
import { readAuthToken } from '../storage/auth-token.js';
import {
  addConnectOptions,
  type ConnectFlags,
  connectOptions,
} from './concurrency/connect-options.js';
import { keyPress } from './key-press.js';
import type { Mode, Options } from './run.js';
import type { Target } from './storage-client.js';

const { version } = createRequire(import.meta.url)('etcd-fenced-lock/package.json');

addConnectOptions(new Command('client'))
  .description(
    'Takes a lock in etcd and writes to storage with a fencing token, its lease ID.\n' +
      'Client 1 waits for a key before it writes: the time to revoke its lease.',
  )
  .usage('[options] <1 or 2>')
  .argument('[mode]', '1 waits for a key before the write, 2 does not')
  .allowExcessArguments()
  .option('--storage <url>', 'where storage listens', parseUrl, 'http://localhost:8080')
  .option('--storage-cacert <file>', 'certificates to trust at storage, PEM')
  .option('--storage-timeout <seconds>', 'for storage to answer in', parseSeconds, 10)
  .option('--auth-token-file <file>', 'file with the token that storage wants')
  .addOption(
    new Option('--token <kind>', 'fencing token: the lease ID, or the revision of the lock')
      .choices(['lease', 'revision'])
      .default('lease'),
  )
  .option('--ttl <seconds>', 'time to live to ask for', parseSeconds, 1)
  .option(
    '--block <seconds>',
    'client 1 blocks its event loop instead of waiting for a key',
    parseSeconds,
  )
  .option('--lock <name>', 'name of the lock', '/lock')
  .option('--record <key>', 'key to write in storage', 'key0')
  .version(version)
  .action(main)
  .parse();

type Flags = Pick<Options, 'token' | 'ttl' | 'lock' | 'record' | 'block'> &
  ConnectFlags & {
    storage: string;
    storageTimeout: number;
    storageCacert?: string;
    authTokenFile?: string;
  };

async function main(given: string | undefined, flags: Flags, command: Command) {
  if (given === undefined || command.args.length !== 1) return fail('usage: client <1 or 2>');
  const mode = parseMode(given);
  if (!mode) return fail(`mode should be 1 or 2 (given value is ${given})`);
  const storage = target(flags);
  const told = new AbortController();
  let since = 0;
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(name, () => {
      // npm passes on what the terminal sent us already: only a later one is meant as a second.
      if (told.signal.aborted && performance.now() - since > 1000) process.exit(exitCode(name));
      if (!told.signal.aborted) since = performance.now();
      told.abort(name);
    });
  }
  // A terminal that is gone must not keep the lock from being released.
  process.stderr.on('error', () => {});
  try {
    // From Node.js 22.1 on: what is loaded next need not be compiled each time. Not in the system's
    // temporary folder, where Node would run what another user has put there first.
    const { enableCompileCache } = module as { enableCompileCache?: (folder: string) => void };
    enableCompileCache?.(join(env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'etcd-fenced-lock'));
    // Loaded by need: --help does without all that talks to etcd.
    const { run } = await import('./run.js');
    const well = await run(
      mode,
      { ...flags, etcd: connectOptions(flags), storage },
      {
        log,
        // To the whole job, as the terminal does: a parent such as npx takes part in it.
        keyPress: (signal) => keyPress(process.stdin, signal, (name) => process.kill(0, name)),
        signal: told.signal,
      },
    );
    process.exit(well ? 0 : 1);
  } catch (error) {
    if (!told.signal.aborted) throw error;
    process.exit(exitCode(told.signal.reason));
  }
}

/** As shells count: 128 plus the number of the signal. */
function exitCode(name: NodeJS.Signals): number {
  return 128 + constants.signals[name];
}

/** With the prefix of Go's log package: local date and time. */
function log(line: string): void {
  const now = new Date();
  const two = (value: number) => String(value).padStart(2, '0');
  const date = [now.getFullYear(), two(now.getMonth() + 1), two(now.getDate())].join('/');
  const time = [now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join(':');
  process.stderr.write(`${date} ${time} ${line}\n`);
}

function fail(line: string): never {
  log(line);
  process.exit(1);
}

/** Any spelling of 1 and 2 that Go's strconv.Atoi takes. */
function parseMode(text: string): Mode | undefined {
  const mode = /^[+-]?\d+$/.test(text) ? Number(text) : undefined;
  return mode === 1 || mode === 2 ? mode : undefined;
}

function target({
  storage: url,
  storageTimeout: timeout,
  storageCacert,
  authTokenFile,
}: Flags): Target {
  try {
    return {
      url,
      timeout,
      ...(storageCacert !== undefined && { cacert: readFileSync(storageCacert) }),
      ...(authTokenFile !== undefined && { authToken: readAuthToken(authTokenFile) }),
    };
  } catch (error) {
    return fail((error as Error).message);
  }
}

function parseSeconds(text: string): number {
  const seconds = Number(text);
  if (/^\d+$/.test(text) && seconds > 0 && Number.isSafeInteger(seconds)) return seconds;
  throw new InvalidArgumentError('expected a whole number of seconds above 0');
}

function parseUrl(text: string): string {
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return text;
  throw new InvalidArgumentError('expected http://host:port or https://host:port');
}
