// Uses node itself as the child, with a line or two of script.

import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Program, type ProgramOptions } from './program.js';

function run(script: string, options?: ProgramOptions): Program {
  const program = Program.start(process.execPath, ['-e', script], options);
  onTestFinished(() => program[Symbol.asyncDispose]());
  return program;
}

test('a line can be awaited before and after it came, on either stream', async () => {
  const program = run(
    'console.log("to out"); process.stdin.once("data", () => console.error("to err"))',
  );
  expect(await program.line('out')).toBe('to out');
  const toCome = program.line(/^to err$/);
  program.write('go\n');
  expect(await toCome).toBe('to err');
  expect(await program.line('to')).toBe('to out');
  expect(program.stdout).toBe('to out\n');
  expect(program.stderr).toBe('to err\n');
});

test('lines come whole, however they are cut, and the last one without a line end too', async () => {
  const lines: string[] = [];
  const program = run(
    `const bytes = Buffer.from('käse\\nbrot\\nwein');
     for (const byte of bytes) require('fs').writeSync(1, Buffer.of(byte))`,
    { onLine: (line, stream) => lines.push(`${stream}: ${line}`) },
  );
  await program.exited;
  expect(lines).toEqual(['stdout: käse', 'stdout: brot', 'stdout: wein']);
});

test('nextLine gives the lines one by one, also those of one chunk, and null at the end', async () => {
  const program = run('process.stdin.once("data", () => console.log("one\\ntwo\\nthree"))');
  const first = program.nextLine();
  program.write('go\n');
  program.end();
  expect(await first).toBe('one');
  expect(await program.nextLine()).toBe('two');
  expect(await program.line('one')).toBe('one');
  expect(await program.nextLine()).toBe('three');
  expect(await program.nextLine()).toBe(null);
});

test('waiting for a line that never comes rejects when the process ends, quoting its output', async () => {
  const program = run('console.log("some words"); process.exitCode = 3');
  await expect(program.line('other words')).rejects.toThrow(/exit code 3[\s\S]*some words/);
  await expect(program.line('other words')).rejects.toThrow(/exit code 3/);
});

test('waiting for a line that never comes rejects after the time-out, quoting its output', async () => {
  const program = run('console.log("some words"); setInterval(() => {}, 1000)');
  await program.line('some words');
  await expect(program.line('other', { timeout: 50 })).rejects.toThrow(/50 ms[\s\S]*some words/);
});

test('the way it ended is told', async () => {
  expect(await run('process.exit(7)').exited).toEqual({ code: 7, signal: null });
  for (const tty of [false, true]) {
    const program = run('console.log("up"); setInterval(() => {}, 1000)', { tty });
    await program.line('up');
    program.signal('SIGTERM');
    expect(await program.exited).toEqual({ code: null, signal: 'SIGTERM' });
    program.signal('SIGTERM');
  }
});

test('end() ends its standard input', async () => {
  const program = run('process.stdin.on("data", console.log).on("end", () => console.log("eof"))');
  program.end();
  await program.line('eof');
});

test('under a terminal a single key arrives without Enter, and carriage returns are taken out', async () => {
  const program = run(
    `process.stdin.setRawMode(true).once('data', (key) => {
       process.stdin.setRawMode(false).pause();
       console.error('key ' + key, '' + process.stdin.isTTY, '' + process.stderr.isTTY);
     });
     console.log('ready');`,
    { tty: true },
  );
  await program.line('ready');
  program.write('x');
  expect(await program.line('key')).toBe('key x true true');
  expect(await program.exited).toEqual({ code: 0, signal: null });
  expect(program.stdout).toBe('ready\nkey x true true\n');
});

test('under a terminal Ctrl-C interrupts', async () => {
  const program = run('console.log("up"); setInterval(() => {}, 1000)', { tty: true });
  await program.line('up');
  program.write('\x03');
  expect((await program.exited).signal).toBe('SIGINT');
});

test.each([false, true])(
  'it gets our environment but for what configures etcd (tty: %s)',
  async (tty) => {
    vi.stubEnv('ETCD_NAME', 'leak');
    vi.stubEnv('ETCDCTL_ENDPOINTS', 'leak');
    vi.stubEnv('TAKEN_AWAY', 'leak');
    vi.stubEnv('INHERITED', 'yes');
    onTestFinished(() => void vi.unstubAllEnvs());
    const program = run(
      `for (const name of ['ETCD_NAME', 'ETCDCTL_ENDPOINTS', 'TAKEN_AWAY', 'INHERITED', 'ETCD_GIVEN'])
       console.log(name + '=' + process.env[name])`,
      { tty, env: { TAKEN_AWAY: undefined, ETCD_GIVEN: 'yes' } },
    );
    await program.exited;
    expect(program.stdout.split('\n')).toEqual([
      'ETCD_NAME=undefined',
      'ETCDCTL_ENDPOINTS=undefined',
      'TAKEN_AWAY=undefined',
      'INHERITED=yes',
      'ETCD_GIVEN=yes',
      '',
    ]);
  },
);

test.each([false, true])('disposing kills it with what it started (tty: %s)', async (tty) => {
  const child = await lifeline();
  const program = run(
    `require('child_process').spawn(process.execPath, ['-e', ${JSON.stringify(child.script)}]);
     setInterval(() => {}, 1000)`,
    { tty },
  );
  await child.started;
  await program[Symbol.asyncDispose]();
  await child.ended;
  await program[Symbol.asyncDispose]();
});

test('a command that does not exist cannot be started', () => {
  expect(() => Program.start('/no/such/command', [])).toThrow('cannot start /no/such/command');
});

test.each([
  ['SIGINT', ''],
  ['SIGTERM', ''],
  ['SIGHUP', ''],
  ['SIGKILL', ''],
  ['an uncaught error', 'throw new Error("uncaught")'],
  ['process.exit', 'process.exit(1)'],
])('no child or grandchild outlives a parent that ends by %s', async (how, lastWords) => {
  const folder = await mkdtemp(join(tmpdir(), 'program-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const child = await lifeline();
  const script = join(folder, 'parent.mts');
  await writeFile(
    script,
    `import { Program } from ${JSON.stringify(new URL('./program.ts', import.meta.url).href)};
     process.once('SIGUSR2', () => { ${lastWords} });
     const args = ['-c', '"$@" & wait', 'sh', process.execPath, '-e', ${JSON.stringify(child.script)}];
     Program.start('sh', args);`,
  );
  const parent = Program.start(process.execPath, ['--import', 'tsx', script]);
  onTestFinished(() => parent[Symbol.asyncDispose]());
  await child.started;
  const signal = how.startsWith('SIG') ? (how as NodeJS.Signals) : null;
  parent.signal(signal ?? 'SIGUSR2');
  expect(await parent.exited).toEqual({ code: signal ? null : 1, signal });
  await child.ended;
});

/** A script that stays alive, ignoring SIGHUP, and when it has started and ended. */
async function lifeline() {
  const server = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const started: Promise<Socket[]> = once(server, 'connection');
  return {
    script: `process.on('SIGHUP', () => {}); require('net').connect(${port}, '127.0.0.1')`,
    started,
    ended: started.then(
      ([socket]) => socket && once(socket.on('error', () => {}).resume(), 'close'),
    ),
  };
}
