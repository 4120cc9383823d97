#!/usr/bin/env node
/**
 * The program `storage`: the resource that the lock of etcd's contrib/lock protects. Upstream takes
 * no options; its port and its rule are the defaults here.
 */
import { createRequire } from 'node:module';
import { Command, InvalidArgumentError, Option } from 'commander';
import { createApp } from './app.js';
import { rules } from './fence.js';
import { type Address, ListenError, listen, parseAddress } from './listen.js';
import { MemoryStore } from './stores/memory.js';

const { version } = createRequire(import.meta.url)('etcd-fenced-lock/package.json');

/** How long requests in flight may take, in milliseconds, once the program is told to stop. */
const PATIENCE = 5000;

// Whoever reads the log may go away (`storage | head -1`); that is no reason to stop serving.
process.stdout.on('error', () => {});

await new Command('storage')
  .description('Keeps values in memory; refuses a write whose version is not the stored one.')
  .version(version)
  .addOption(
    new Option(
      '--listen <[host]:port>',
      'where to listen; no host is every interface, port 0 any free port, localhost both 127.0.0.1 and ::1',
    )
      .argParser(address)
      .default(parseAddress('localhost:8080'), 'localhost:8080'),
  )
  .action(serve)
  .parseAsync();

async function serve(options: { listen: Address }): Promise<void> {
  const app = createApp({
    store: new MemoryStore(),
    rule: rules.equal,
    // While nobody reads what was logged before, the rest is not kept.
    log: (line) => process.stdout.writableNeedDrain || console.log(line),
  });
  const server = await listen(app, options.listen).catch((error: unknown) => {
    if (!(error instanceof ListenError)) throw error;
    console.error(`storage: ${error.message}`);
    process.exit(1);
  });
  let since: number | undefined;
  const stop = (name: NodeJS.Signals) => {
    if (since === undefined) {
      since = performance.now();
      server.close(PATIENCE);
    } else if (performance.now() - since > 1000) {
      // npm passes on what the terminal sent us already: only a later one is meant as a second.
      process.off(name, stop);
      process.kill(process.pid, name);
    }
  };
  process.on('SIGTERM', stop).on('SIGINT', stop);
  console.log(`storage listening on ${server.url} (${server.hosts.join(' and ')})`);
}

function address(text: string): Address {
  try {
    return parseAddress(text);
  } catch (error) {
    throw new InvalidArgumentError((error as RangeError).message);
  }
}
