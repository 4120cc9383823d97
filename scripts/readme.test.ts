// The README, run: the walk-through by hand with the expected output of each step, the requests to
// storage, the options. Where it says 2379 and 8080 these tests use an etcd and ports of their own;
// everything else is as it is written there. The library's own README is run by package.test.ts.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generate } from 'selfsigned';
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

test('the storage that really fences is as the README says', async () => {
  const data = await mkdtemp(join(tmpdir(), 'readme-test-'));
  onTestFinished(() => rm(data, { recursive: true }));
  const walk = new Walk(endpoint, data);
  await using storage = walk.start(/^\$ npx storage --fence monotonic/);
  await walk.follow(storage);
  for (let i = 0; i < 3; i++) {
    await using client = walk.start('npx client 2 --token revision');
    await walk.follow(client);
    expect((await client.program.exited).code).toBe(0);
  }
  for (const path of ['/', '/healthz', '/metrics']) {
    expect((await fetch(new URL(path, walk.storage))).status).toBe(200);
  }
  const metrics = await (await fetch(new URL('/metrics', walk.storage))).text();
  const listed = readme.matchAll(/^\| `(storage_\w+)/gm);
  for (const [, name] of listed) expect(metrics).toContain(`# TYPE ${name} `);
  // To the whole job, as Ctrl-C.
  process.kill(-storage.program.pid, 'SIGINT');
  await storage.program.exited;
  await using reset = walk.start(/^\$ npx storage reset-fence/);
  await walk.follow(reset);
  expect((await reset.program.exited).code).toBe(0);
});

test('storage behind TLS and a token is as the README says', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'readme-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const { cert, private: key } = await generate([{ name: 'commonName', value: 'localhost' }], {
    keyType: 'ec',
    extensions: [{ name: 'subjectAltName', altNames: [{ type: 2, value: 'localhost' }] }],
  });
  const files = { 'cert.pem': cert, 'ca.pem': cert, 'key.pem': key, token: 's3cret\n' };
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  const [serve = '', write = ''] =
    blocks('sh').find(([first]) => first?.startsWith('npx storage ')) ?? [];
  const run = (command: string) => {
    const [, name = '', ...args] = command.split(' ');
    const main = join(root, 'dist', name, 'main.js');
    return Program.start('node', [main, ...args], { cwd: folder });
  };
  await using storage = run(serve.replace(':8443', ':0'));
  const [, port] = /https:\/\/localhost:(\d+) /.exec(await storage.line('listening')) ?? [];
  const place = `https://localhost:${port} --endpoints ${endpoint} --lock /${folder}`;
  await using client = run(write.replace('https://storage.example:8443', place));
  await client.line('successfully write a key');
  expect(storage.stderr).toBe('');
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

test.each(['client', 'storage'])('%s has the options that the README lists', async (name) => {
  const block = blocks('').find((lines) => lines[0]?.startsWith(`${name} [`)) ?? [];
  const flags = new Set(block.join('\n').match(/--[a-z-]+/g));
  const main = join(root, 'dist', name, 'main.js');
  await using program = Program.start('node', [main, '--help']);
  await program.exited;
  const all = new Set(program.stdout.match(/^ +--[a-z-]+/gm)?.map((flag) => flag.trim()));
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
  storage = 'http://localhost:8080';
  /** The README's lease IDs, and what they are this time. */
  readonly #leases = new Map<string, string>();

  /** `data` stands for the README's folder of data. */
  constructor(
    private readonly endpoint: string,
    private readonly data = '',
  ) {}

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
        .replace(/(token:?|at) \d+/, '$1 \\d+')
        .replace('\\.cache/data', this.data)
        // etcdctl writes all 16 digits of an ID, upstream's client does not.
        .replace(LEASE, (lease) => `0*${this.#leases.get(lease) ?? '([0-9a-f]+)'}`);
      const came = (await program.nextLine({ timeout: 30_000 })) ?? 'the end';
      const match = came.match(new RegExp(`^${pattern}$`));
      if (!match) expect(came).toBe(line);
      const [lease] = line.match(LEASE) ?? [];
      if (lease !== undefined && match?.[1]) this.#leases.set(lease, match[1]);
      this.storage = came.match(/http:\/\/localhost:\d+/)?.[0] ?? this.storage;
    }
  }

  /** The command with this time's ports and lease IDs. */
  adapt(command: string): string {
    return command
      .replace(/^npx storage(?! reset)/, '$& --listen localhost:0')
      .replace('.cache/data', this.data)
      .replace(/^npx client .*$/, `$& --storage ${this.storage}`)
      .replace('localhost:8080', this.storage)
      .replace(LEASE, (lease) => this.#leases.get(lease) ?? lease);
  }
}
