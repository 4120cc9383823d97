// `npm run etcd`: an etcd in the foreground, on the port that the clients look at first, with a
// temporary data folder. Ctrl-C ends it and removes the data.

import { once } from 'node:events';
import { Command, InvalidArgumentError } from 'commander';
import { PortTakenError, startEtcd } from './lib/etcd.js';
import { exitCode, interruption } from './lib/interruption.js';

const DEFAULT_PORT = 2379;

const { port } = new Command('npm run etcd --')
  .description('Runs an etcd with a temporary data folder until Ctrl-C.')
  .option('--port <number>', 'port for clients, on 127.0.0.1', parsePort, DEFAULT_PORT)
  .parse()
  .opts<{ port: number }>();
const interrupted = interruption();

try {
  await using etcd = await startEtcd({ clientPort: port });
  const endpoints = port === DEFAULT_PORT ? '' : ` --endpoints=${etcd.endpoints}`;
  console.log(
    `etcd serves on ${etcd.endpoints} until Ctrl-C; talk to it with: .cache/bin/etcdctl${endpoints} lease list`,
  );
  if (!interrupted.aborted) {
    await Promise.race([once(interrupted, 'abort'), ...etcd.members.map(({ exited }) => exited)]);
  }
  if (!interrupted.aborted) throw new Error('etcd ended by itself');
} catch (error) {
  if (!interrupted.aborted) {
    const hint =
      error instanceof PortTakenError ? '; choose another: npm run etcd -- --port 12379' : '';
    console.error(`${(error as Error).message}${hint}`);
    process.exit(1);
  }
}
process.exit(exitCode(interrupted.reason));

function parsePort(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port >= 1 && port <= 65535) return port;
  throw new InvalidArgumentError('Expected a port of 1 to 65535.');
}
