// What a user waits for at the prompt: the time from exec to exit of the built programs, against a
// Node that does nothing. Each run is checked: it must have said what it is for, and ended well.

import { fileURLToPath } from 'node:url';
import { startEtcd } from '../lib/etcd.js';
import { describeExit, Program, type ProgramOptions, startStorage } from '../lib/program.js';
import type { Case } from './case.js';
import { temporaryFolder } from './folder.js';
import { inTurn, median, ratio } from './measure.js';

export const startup: Case = {
  about: 'the programs, from exec to exit, against `node -e 0`',
  async *run({ scale, signal }) {
    await using etcd = await startEtcd();
    await using folder = await temporaryFolder();
    // As its users have it, where Node keeps compiled code.
    const env = { NODE_DISABLE_COMPILE_CACHE: undefined, XDG_CACHE_HOME: folder.path };
    await using storage = await startStorage(['--fence', 'monotonic']);
    const places = ['--endpoints', etcd.endpoints.join(), '--storage', storage.url];
    const write = [client, '2', '--token', 'revision', ...places];
    const { floor, ...programs } = await inTurn(
      {
        floor: () => run(['-e', '0'], /^$/, env),
        'client 2': () => run(write, /successfully write a key/, env),
        'client --help': () => run([client, '--help'], /^Usage: client /, env),
        'storage --help': () => run([server, '--help'], /^Usage: storage /, env),
      },
      { rounds: Math.ceil(20 * scale), warmUp: 1, signal },
    );
    for (const [what, figures] of Object.entries(programs)) {
      const aim = AIMS.get(what);
      yield {
        what,
        value: median(figures),
        unit: 'ms',
        against: {
          what: 'node -e 0',
          value: median(floor),
          ratio: ratio(figures, floor),
          ...(aim && { aim }),
        },
      };
    }
  },
};

const client = built('client');
const server = built('storage');

const AIMS: ReadonlyMap<string, { atMost: number }> = new Map([
  ['client 2', { atMost: 2.5 }],
  ['client --help', { atMost: 1.3 }],
]);

async function run(
  args: string[],
  said: RegExp,
  env: NonNullable<ProgramOptions['env']>,
): Promise<void> {
  await using program = Program.start(process.execPath, args, { env });
  const exit = await program.exited;
  const output = program.stdout + program.stderr;
  if (exit.code !== 0 || !said.test(output)) {
    throw new Error(`node ${args.join(' ')}: ${describeExit(exit)}, and it said:\n${output}`);
  }
}

function built(name: string): string {
  return fileURLToPath(new URL(`../../dist/${name}/main.js`, import.meta.url));
}
