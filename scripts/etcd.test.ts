import { fileURLToPath } from 'node:url';
import { expect, inject, onTestFinished, test } from 'vitest';
import { freePorts } from './lib/etcd.js';
import { trace } from './lib/leftovers.js';
import { Program } from './lib/program.js';

async function start(...args: string[]) {
  const traced = await trace();
  onTestFinished(() => traced[Symbol.asyncDispose]());
  const script = fileURLToPath(new URL('./etcd.ts', import.meta.url));
  const program = Program.start(process.execPath, ['--import', 'tsx', script, ...args], traced);
  onTestFinished(() => program[Symbol.asyncDispose]());
  return { program, leftovers: traced.leftovers };
}

const LONG = { timeout: 25_000 };

test('it serves on the port asked for, the command it tells works, Ctrl-C leaves nothing behind', async () => {
  const [port = 0] = await freePorts(1);
  const { program, leftovers } = await start('--port', String(port));
  const line = await program.line('etcd serves on', LONG);
  expect(line).toContain(`http://127.0.0.1:${port} `);
  const [, command = ''] = /: (\S+etcdctl .*)$/.exec(line) ?? [];
  const root = fileURLToPath(new URL('..', import.meta.url));
  await using etcdctl = Program.start('sh', ['-c', command], { cwd: root });
  expect((await etcdctl.exited).code).toBe(0);
  expect(etcdctl.stdout).toBe('found 0 leases\n');
  program.signal('SIGINT');
  program.signal('SIGINT');
  expect(await program.exited).toEqual({ code: 130, signal: null });
  await expect.poll(leftovers).toEqual([]);
});

test('a port in use is told in one line', async () => {
  const [endpoint = ''] = inject('etcd');
  const { program, leftovers } = await start('--port', new URL(endpoint).port);
  expect(await program.exited).toEqual({ code: 1, signal: null });
  expect(program.stdout).toBe('');
  expect(program.stderr).toMatch(/^etcd cannot listen on .*the port is in use; .*--port 12379\n$/);
  await expect.poll(leftovers).toEqual([]);
});
