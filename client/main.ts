#!/usr/bin/env node
// `client <1|2>`: options, signals and exit codes; the flow is in run.ts.

import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { type ConnectOptions, ENDPOINTS } from './concurrency/index.js';
import { keyPress } from './key-press.js';
import { type Mode, type Options, run } from './run.js';

const { version } = createRequire(import.meta.url)('etcd-fenced-lock/package.json');

// As for etcdctl, a variable that is empty is not set.
for (const [name, value] of Object.entries(process.env)) {
  if (name.startsWith('ETCDCTL_') && value === '') delete process.env[name];
}

new Command('client')
  .description(
    'Takes a lock in etcd and writes to storage with its lease ID as the fencing token.\n' +
      'Client 1 waits for a key before it writes: the time to revoke its lease.',
  )
  .usage('[options] <1 or 2>')
  .argument('[mode]', '1 waits for a key before the write, 2 does not')
  .allowExcessArguments()
  .addOption(
    new Option('--endpoints <urls>', 'etcd members, separated by commas')
      .env('ETCDCTL_ENDPOINTS')
      .default(ENDPOINTS, ENDPOINTS.join(','))
      .argParser(parseEndpoints),
  )
  .addOption(file('--cacert <file>', 'certificates to trust, PEM', 'ETCDCTL_CACERT'))
  .addOption(file('--cert <file>', 'certificate of this client, PEM', 'ETCDCTL_CERT'))
  .addOption(file('--key <file>', 'private key of this client, PEM', 'ETCDCTL_KEY'))
  .addOption(new Option('--user <name[:password]>', 'user in etcd').env('ETCDCTL_USER'))
  .addOption(
    new Option('--password <password>', 'if not given with --user').env('ETCDCTL_PASSWORD'),
  )
  .option('--storage <url>', 'where storage listens', parseUrl, 'http://localhost:8080')
  .option('--ttl <seconds>', 'time to live to ask for', parseTtl, 1)
  .option('--lock <name>', 'name of the lock', '/lock')
  .option('--record <key>', 'key to write in storage', 'key0')
  .version(version)
  .action(main)
  .parse();

type Flags = Omit<Options, 'etcd'> & ConnectOptions & { password?: string };

async function main(given: string | undefined, flags: Flags, command: Command) {
  if (given === undefined || command.args.length !== 1) return fail('usage: client <1 or 2>');
  const mode = parseMode(given);
  if (!mode) return fail(`mode should be 1 or 2 (given value is ${given})`);
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
    const well = await run(
      mode,
      { ...flags, etcd: { ...flags, ...user(flags) } },
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

function file(flags: string, description: string, variable: string): Option {
  return new Option(flags, description).env(variable);
}

/** As etcdctl: the password comes with the name or on its own. */
function user({ user, password }: Flags): Pick<ConnectOptions, 'user'> {
  return user !== undefined && password !== undefined ? { user: `${user}:${password}` } : {};
}

function parseEndpoints(text: string): string[] {
  return text.split(',').map((endpoint) => endpoint.trim());
}

function parseTtl(text: string): number {
  const ttl = Number(text);
  if (/^\d+$/.test(text) && ttl > 0 && Number.isSafeInteger(ttl)) return ttl;
  throw new InvalidArgumentError('expected a whole number of seconds above 0');
}

function parseUrl(text: string): string {
  if (URL.canParse(text) && new URL(text).protocol === 'http:') return text;
  throw new InvalidArgumentError('expected http://host:port');
}
