// The README, run: the walk-through by hand with the expected output of each step, the requests to
// storage, the library example, the options. Where it says 2379 and 8080 these tests use an etcd and
// ports of their own; everything else is as it is written there.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, inject, onTestFinished, test } from 'vitest';
import { startEtcd } from './lib/etcd.js';
import { Program } from './lib/program.js';

const root = join(import.meta.dirname, '..');
const readme = await readFile(join(root, 'README.md'), 'utf8');
const [endpoint = ''] = inject('etcd');

test('the walk-through goes as the README says', async () => {
  await using etcd = await startEtcd();
  const walk = new Walk(etcd.endpoints[0] ?? '');
  await using storage = walk.start('npx storage');
  await walk.follow(storage);
  await using client1 = walk.start('npx client 1');
  await walk.follow(client1);
  for (const command of ['.cache/bin/etcdctl lease list', /etcdctl lease revoke/, 'npx client 2']) {
    await using terminal = walk.start(command);
    await walk.follow(terminal);
    expect(await terminal.program.exited).toEqual({ code: 0, signal: null });
  }
  client1.program.write('k');
  await walk.follow({ ...client1, expected: blocks('console').find(isResuming) ?? [] });
  expect(await client1.program.exited).toEqual({ code: 0, signal: null });
});

test('storage answers the README’s requests as it says', async () => {
  const walk = new Walk(endpoint);
  await using storage = walk.start('npx storage');
  await walk.follow(storage);
  const requests = blocks('console').find(([first]) => first?.startsWith('$ curl')) ?? [];
  expect(requests).toHaveLength(8);
  for (let i = 0; i < requests.length; i += 2) {
    const command = walk.adapt(requests[i]?.slice(2) ?? '').replace('curl', 'curl --silent');
    await using curl = Program.start('bash', ['-c', command]);
    expect(await curl.nextLine()).toBe(requests[i + 1]);
  }
});

test('the library example writes with its token', async () => {
  const [lines = []] = blocks('js');
  const source = lines.join('\n').replace('http://127.0.0.1:2379', endpoint);
  // In the project, whose name the example imports.
  const folder = await mkdtemp(join(root, '.cache', 'readme-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(join(folder, 'example.mjs'), source);
  await using example = Program.start('node', [join(folder, 'example.mjs')]);
  expect(await example.nextLine()).toMatch(/^written with token \d+$/);
  expect(await example.exited).toEqual({ code: 0, signal: null });
  expect(example.stderr).toBe('');
});

test.each(['client', 'storage'])('%s has the options that the README lists', async (name) => {
  const block = blocks('').find((lines) => lines[0]?.startsWith(`${name} [`)) ?? [];
  const flags = new Set(block.join('\n').match(/--[a-z-]+/g));
  const main = join(root, 'dist', name, 'main.js');
  await using program = Program.start('node', [main, '--help']);
  await program.exited;
  const all = new Set(program.stdout.match(/--[a-z-]+/g));
  for (const common of ['--help', '--version']) all.delete(common);
  expect([...flags].sort()).toEqual([...all].sort());
});

test('npm link gives the bare names', async () => {
  const prefix = await mkdtemp(join(tmpdir(), 'readme-test-'));
  onTestFinished(() => rm(prefix, { recursive: true }));
  const env = { npm_config_prefix: prefix, PATH: `${prefix}/bin:${process.env.PATH}` };
  await using link = Program.start('npm', ['link', '--ignore-scripts'], { env, cwd: root });
  expect((await link.exited).code).toBe(0);
  await using bare = Program.start('client', ['x'], { env });
  await bare.line('mode should be 1 or 2 (given value is x)');
});

/** The lines of each block of code in the README that is marked as this language. */
function blocks(language: string): string[][] {
  return [...readme.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)]
    .filter(([, marked]) => marked === language)
    .map(([, , code = '']) => code.trimEnd().split('\n'));
}

function isResuming([first = '']: string[]): boolean {
  return first.endsWith('resuming client 1');
}

/** The lease IDs in the README. */
const LEASE = /\b694d[0-9a-f]{12}\b/g;

interface Step {
  program: Program;
  /** The lines that the README shows after the command. */
  expected: string[];
}

/** Follows the README's console blocks. What is different every time is taken from the first output. */
class Walk {
  #storage = 'http://localhost:8080';
  /** The README's lease IDs, and what they are this time. */
  readonly #leases = new Map<string, string>();

  constructor(private readonly endpoint: string) {}

  start(wanted: string | RegExp): Step & AsyncDisposable {
    const [first = '', ...expected] =
      blocks('console').find(([first = '']) =>
        typeof wanted === 'string' ? first === `$ ${wanted}` : wanted.test(first),
      ) ?? [];
    expect(first, `no block of the README begins with ${wanted}`).toMatch(/^\$ /);
    const options = { env: { ETCDCTL_ENDPOINTS: this.endpoint, ETCDCTL_API: '3' }, cwd: root };
    const program = Program.start('bash', ['-c', `exec ${this.adapt(first.slice(2))}`], options);
    return { program, expected, [Symbol.asyncDispose]: () => program[Symbol.asyncDispose]() };
  }

  async follow({ program, expected }: Step): Promise<void> {
    for (const line of expected) {
      const pattern = line
        .replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
        .replace(/^\d{4}\/\d\d\/\d\d \d\d:\d\d:\d\d/, '\\d{4}/\\d\\d/\\d\\d \\d\\d:\\d\\d:\\d\\d')
        .replace('http://localhost:8080', 'http://localhost:\\d+')
        // Where the machine has that address.
        .replace(' and ::1', '(?: and ::1)?')
        // etcdctl writes all 16 digits of an ID, upstream's client does not.
        .replace(LEASE, (lease) => `0*${this.#leases.get(lease) ?? '([0-9a-f]+)'}`);
      const came = (await program.nextLine({ timeout: 30_000 })) ?? 'the end';
      const match = came.match(new RegExp(`^${pattern}$`));
      if (!match) expect(came).toBe(line);
      const [lease] = line.match(LEASE) ?? [];
      if (lease !== undefined && match?.[1]) this.#leases.set(lease, match[1]);
      this.#storage = came.match(/http:\/\/localhost:\d+/)?.[0] ?? this.#storage;
    }
  }

  /** The command with this time's ports and lease IDs. */
  adapt(command: string): string {
    return command
      .replace(/^npx storage$/, '$& --listen localhost:0')
      .replace(/^npx client .*$/, `$& --storage ${this.#storage}`)
      .replace('localhost:8080', this.#storage)
      .replace(LEASE, (lease) => this.#leases.get(lease) ?? lease);
  }
}
