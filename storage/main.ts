#!/usr/bin/env node
/**
 * The program `storage`: the resource that the lock of etcd's contrib/lock protects. Upstream takes
 * no options; its port, its rule and its store are the defaults here.
 */
import { accessSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createSecureContext } from 'node:tls';
import { Command, InvalidArgumentError, Option } from 'commander';
import type { Etcd3 } from 'etcd3';
import {
  addConnectOptions,
  type ConnectFlags,
  connectOptions,
} from '../client/concurrency/connect-options.js';
import { readAuthToken } from './auth-token.js';
import { rules } from './fence.js';
import { type Address, listen, parseAddress } from './listen.js';
import { formats, type Outcome, printable } from './outcome.js';
import { MemoryStore } from './stores/memory.js';
import type { Store } from './stores/store.js';

const { version } = createRequire(import.meta.url)('etcd-fenced-lock/package.json');

/** How long requests in flight may take, in milliseconds, once the program is told to stop. */
const PATIENCE = 5000;

// Whoever reads the log may go away (`storage | head -1`); that is no reason to stop serving.
process.stdout.on('error', () => {});

type StoreFlags = ConnectFlags & { store: keyof typeof stores; data?: string; prefix: string };
type Flags = StoreFlags & {
  listen: Address;
  fence: keyof typeof rules;
  lock: string;
  tlsCert?: string;
  tlsKey?: string;
  authTokenFile?: string;
  log?: keyof typeof formats;
};

/** What is opened here and closed when the program stops, by need. */
class Resources {
  #etcd: Etcd3 | undefined;

  // Loaded by need: most uses are without etcd, and lmdb is machine code.
  async etcd(flags: StoreFlags): Promise<Etcd3> {
    const { connect } = await import('../client/concurrency/index.js');
    this.#etcd ??= await connect(connectOptions(flags));
    return this.#etcd;
  }

  close(): void {
    this.#etcd?.close();
  }
}

const stores = {
  memory: async (): Promise<Store> => new MemoryStore(),
  lmdb: async ({ data }: StoreFlags): Promise<Store> => {
    if (!data) throw new RangeError('--store lmdb needs --data <folder>');
    const { LmdbStore } = await import('./stores/lmdb.js');
    return LmdbStore.open(data);
  },
  etcd: async (flags: StoreFlags, resources: Resources): Promise<Store> => {
    const { EtcdStore } = await import('./stores/etcd.js');
    return new EtcdStore(await resources.etcd(flags), flags.prefix);
  },
};

const program = new Command('storage')
  .description('Keeps values; refuses a write whose fencing token its rule does not accept.')
  .version(version)
  .enablePositionalOptions()
  .addOption(
    new Option(
      '--listen <[host]:port>',
      'where to listen; no host is every interface, port 0 any free port, localhost both 127.0.0.1 and ::1',
    )
      .argParser(address)
      .default(parseAddress('localhost:8080'), 'localhost:8080'),
  )
  .addOption(choice('--fence <rule>', 'which tokens a key accepts', rules, 'equal'))
  .option('--lock <name>', 'lock whose holder may write, for --fence holder', '/lock')
  .option('--tls-cert <file>', 'certificate chain to serve HTTPS with, PEM')
  .option('--tls-key <file>', 'its private key, PEM')
  .option('--auth-token-file <file>', 'file with the token that every request must bring')
  .addOption(choice('--log <format>', 'print a line for each request', formats))
  .action((flags: Flags) => serve(flags).catch(fail));
addStoreOptions(program);

addStoreOptions(program.command('reset-fence <key>'))
  .description('Forgets the highest token of a key; its value stays. For when etcd began anew.')
  .action((key: string, flags: StoreFlags, command: Command) =>
    resetFence(key, flags, command).catch(fail),
  );

await program.parseAsync();

function addStoreOptions(command: Command): Command {
  command
    .addOption(choice('--store <kind>', 'where the data is kept', stores, 'memory'))
    .option('--data <folder>', 'folder of --store lmdb; made when it is not there')
    .option('--prefix <text>', 'of the keys of --store etcd', '/storage/');
  return addConnectOptions(command);
}

function choice(flags: string, description: string, from: object, preset?: string): Option {
  return new Option(flags, description).choices(Object.keys(from)).default(preset);
}

async function serve(flags: Flags): Promise<void> {
  checkUse(program, flags);
  checkPlaces(flags);
  const tls = readTls(flags);
  const token = flags.authTokenFile === undefined ? undefined : readAuthToken(flags.authTokenFile);
  // By need as well: --help and a wrong option do without Express.
  const { createApp } = await import('./app.js');
  const resources = new Resources();
  const store = await stores[flags.store](flags, resources);
  const stopping = new AbortController();
  const app = createApp({
    store,
    rule: rules[flags.fence],
    lock: flags.fence === 'holder' ? await lockOf(flags, resources) : undefined,
    host: flags.listen.host,
    token,
    observe: logger(flags.log),
    signal: stopping.signal,
  });
  const server = await listen(app, flags.listen, tls);
  let since: number | undefined;
  const stop = async (name: NodeJS.Signals) => {
    if (since === undefined) {
      since = performance.now();
      stopping.abort();
      await server.close(PATIENCE);
      await store.close();
      resources.close();
    } else if (performance.now() - since > 1000) {
      // npm passes on what the terminal sent us already: only a later one is meant as a second.
      process.off(name, stop);
      process.kill(process.pid, name);
    }
  };
  process.on('SIGTERM', stop).on('SIGINT', stop);
  console.log(`storage listening on ${server.url} (${server.hosts.join(' and ')})`);
  if (!server.local && token === undefined) {
    console.error('storage: warning: whoever can reach it can write; see --auth-token-file');
  } else if (!server.local && !tls) {
    console.error('storage: warning: the token can be read on its way; see --tls-cert');
  }
}

/** What was given and would do nothing was meant to do something. */
function checkUse(command: Command, { store, fence }: Partial<Flags>): void {
  const etcd = store === 'etcd' || fence === 'holder';
  const uses = [
    ['data', store === 'lmdb', '--store lmdb'],
    ['prefix', store === 'etcd', '--store etcd'],
    ['lock', fence === 'holder', '--fence holder'],
    ['endpoints', etcd, fence === undefined ? '--store etcd' : '--store etcd or --fence holder'],
  ] as const;
  for (const [name, used, by] of uses) {
    if (!used && command.getOptionValueSource(name) === 'cli') {
      throw new RangeError(`--${name} is of no use without ${by}`);
    }
  }
}

/** A write must not be able to hit a key of the lock. */
function checkPlaces({ store, prefix, lock }: Flags): void {
  const queue = `${lock}/`;
  if (store === 'etcd' && (queue.startsWith(prefix) || prefix.startsWith(queue))) {
    throw new RangeError(`expected --prefix to be apart from the lock ${lock}, got ${prefix}`);
  }
}

async function lockOf(flags: Flags, resources: Resources) {
  const { EtcdLock } = await import('./lock.js');
  return new EtcdLock(await resources.etcd(flags), flags.lock);
}

function readTls({ tlsCert, tlsKey }: Flags) {
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsCert === undefined || tlsKey === undefined) {
    throw new RangeError('--tls-cert and --tls-key go together');
  }
  const tls = { cert: readFileSync(tlsCert), key: readFileSync(tlsKey) };
  try {
    createSecureContext(tls);
  } catch (error) {
    const why = (error as Error).message;
    throw new RangeError(`${tlsCert} and ${tlsKey} are no certificate with its key: ${why}`);
  }
  return tls;
}

/** Without a format: only what was not understood or failed, in its own words. */
function logger(format: keyof typeof formats | undefined): (outcome: Outcome) => void {
  const print = (line: () => string) => {
    // While nobody reads what was logged before, the rest is not kept.
    if (!process.stdout.writableNeedDrain) console.log(line());
  };
  return (outcome) => {
    const { result, reason } = outcome;
    if (format !== undefined) print(() => formats[format](outcome));
    else if (result === 'failed' || result === 'invalid') print(() => printable(reason));
  };
}

async function resetFence(key: string, flags: StoreFlags, command: Command): Promise<void> {
  if (program.options.some((one) => program.getOptionValueSource(one.attributeName()) === 'cli')) {
    throw new RangeError('expected the options of reset-fence after it');
  }
  checkUse(command, flags);
  if (flags.store === 'memory') {
    throw new RangeError('the memory store forgets when storage ends: restart it instead');
  }
  // Only storage itself makes it.
  if (flags.store === 'lmdb' && flags.data !== undefined) accessSync(flags.data);
  const resources = new Resources();
  try {
    const store = await stores[flags.store](flags, resources);
    let before: bigint | undefined;
    const decision = await store.update(key, (current) => {
      before = current?.version;
      return current ? { entry: { ...current, version: 0n } } : { refusal: 'key not found' };
    });
    await store.close();
    if ('refusal' in decision) throw new RangeError(`${decision.refusal}: ${key}`);
    const place = flags.store === 'lmdb' ? flags.data : `etcd, under ${flags.prefix}`;
    console.log(
      `the fence of ${key} in ${place} was at ${before}; under monotonic and holder the next token sets it anew`,
    );
  } finally {
    resources.close();
  }
}

function fail(error: unknown): never {
  if (!(error instanceof Error)) throw error;
  console.error(`storage: ${error.message}`);
  process.exit(1);
}

function address(text: string): Address {
  try {
    return parseAddress(text);
  } catch (error) {
    throw new InvalidArgumentError((error as RangeError).message);
  }
}
