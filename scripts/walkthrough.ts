// The walk-through of the README with real processes on a private etcd: shows what every terminal
// would show, and checks every line. Client 1 runs under a pseudo-terminal, so that its "any key" is a
// key press.

import { etcdctl, startEtcd } from './lib/etcd.js';
import { Program, type ProgramOptions, startClient, startStorage } from './lib/program.js';
import type { Screen } from './lib/screen.js';
import { check, Terminal } from './lib/terminal.js';

/** What is on the screen, by label. */
export const labels = ['storage', 'client 1', 'client 2', 'etcdctl', 'reader'] as const;
type Label = (typeof labels)[number];

/**
 * Plays it on a private etcd. `flaw`: goes on with a second client 2. Rejects with an UnexpectedError
 * at the first line that is another than it has to be, with the signal's reason when told to end.
 */
export async function walkthrough(
  screen: Screen<Label>,
  interrupted: AbortSignal,
  { flaw }: { flaw: boolean },
): Promise<void> {
  await using etcd = await startEtcd();
  const [endpoint = ''] = etcd.endpoints;
  const open = <P extends Program>(
    label: Label,
    command: string,
    start: (options: ProgramOptions) => P | Promise<P>,
  ): Promise<Terminal<P>> => {
    interrupted.throwIfAborted();
    return Terminal.open(screen, label, command, start);
  };
  const runEtcdctl = async (args: string[], lines: string[]): Promise<void> => {
    await using terminal = await open('etcdctl', `etcdctl ${args.join(' ')}`, (options) =>
      Program.start(etcdctl, ['--endpoints', endpoint, ...args], options),
    );
    for (const line of lines) await terminal.prints(line);
    await terminal.ends();
  };

  screen.narrate(
    'A private etcd has been started. Storage comes next: it keeps a value and a version for\n' +
      'every key, and overwrites a value only for a writer that comes with the same version.',
  );
  await using storage = await open('storage', 'storage --listen localhost:0', (options) =>
    startStorage([], options),
  );
  await storage.prints('storage listening on <url> (<addresses>)');
  const { url } = storage.program;
  const args = ['--endpoints', endpoint, '--storage', url];
  /** From start to exit: the last line, given the lease ID, and the exit code. Returns the lease ID. */
  const runClient2 = async (last: (lease: string) => string, code = 0): Promise<string> => {
    await using client2 = await open('client 2', `client 2 ${args.join(' ')}`, (options) =>
      startClient(2, args, options),
    );
    await client2.prints('<time> client 2 starts');
    await client2.prints('<time> created etcd client and session');
    const lease = await client2.prints('<time> acquired lock, version: <hex>');
    await client2.prints('<time> this is client 2, continuing');
    await client2.prints(`<time> ${last(lease)}`);
    await client2.ends(code);
    return lease;
  };

  screen.narrate(
    'Client 1 takes the lock. The ID of the lease that it holds the lock by is its version.\n' +
      'It stops before the write, as a program that is swapped out or collects garbage may.',
  );
  await using client1 = await open('client 1', `client 1 ${args.join(' ')}`, (options) =>
    startClient(1, args, { ...options, tty: true }),
  );
  await client1.prints('<time> client 1 starts');
  await client1.prints('<time> created etcd client and session');
  const lease1 = await client1.prints('<time> acquired lock, version: <hex>');
  await client1.prints(
    `<time> please manually revoke the lease using 'etcdctl lease revoke ${lease1}' or wait for ` +
      'it to expire, then start executing client 2 and hit any key...',
  );

  screen.narrate(
    'Revoking the lease does at once what too long a pause does in the end: it frees the lock.',
  );
  const padded = lease1.padStart(16, '0'); // etcdctl writes all 16 digits of an ID
  await runEtcdctl(['lease', 'list'], ['found 1 leases', padded]);
  await runEtcdctl(['lease', 'revoke', lease1], [`lease ${padded} revoked`]);

  screen.narrate('Client 2 gets the lock, by a lease of its own, and writes.');
  const lease2 = await runClient2(
    (lease) => `successfully write a key to storage using lease ${lease}`,
  );

  screen.narrate(
    'A key is pressed: client 1 goes on as if it still held the lock, and writes too.',
  );
  client1.program.write('x');
  await client1.prints('<time> resuming client 1');
  await client1.prints(
    '<time> expected fail to write to storage with old lease version: error: given version ' +
      `(${lease1}) is different from the existing version (${lease2})`,
  );
  await client1.ends();

  screen.narrate(
    'The lock could not stop that write, but the version did: what client 2 wrote is there.\n' +
      '(JSON has versions in decimal, messages have them in hex.)',
  );
  const request = '{"op":"read","key":"key0"}';
  screen.show('reader', `POST ${url} ${request}`);
  const response = await fetch(url, { method: 'POST', body: request });
  const answer = await response.text();
  screen.show('reader', answer);
  const version = BigInt(`0x${lease2}`);
  check('reader', `{"val":"value from client 2","version":${version},"err":""}`, answer);

  if (!flaw) return;
  screen.narrate(
    'Act 3, its flaw. Under upstream’s rule a key belongs to its first writer for ever: client 2\n' +
      'comes again, holds the lock, and is refused all the same.',
  );
  await runClient2(
    (lease) =>
      `unexpected fail to write to storage: error: given version (${lease}) is different from ` +
      `the existing version (${lease2})`,
    1,
  );
}
