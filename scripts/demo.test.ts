// Runs the demo's walk-through, well and badly, and looks for what it leaves behind. The whole tour is
// checked by itself: `npm run demo` ends with 0 only if each act ended as it has to.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { trace } from './lib/leftovers.js';
import { Program, type ProgramOptions } from './lib/program.js';

const walkthrough = [
  process.execPath,
  '--import',
  'tsx',
  fileURLToPath(new URL('./demo.ts', import.meta.url)),
  '--walkthrough',
];

test('it plays the walk-through to its end and leaves nothing behind', async () => {
  const { program, leftovers } = await start(walkthrough);
  expect(await program.exited).toEqual({ code: 0, signal: null });
  expect(program.stderr).toBe('');
  const lines = program.stdout.split('\n');
  const [old, current] = lines.flatMap(
    (line) => /lock, version: ([0-9a-f]+)$/.exec(line)?.[1] ?? [],
  );
  const time = '\\d{4}/\\d\\d/\\d\\d \\d\\d:\\d\\d:\\d\\d';
  expect(lines).toContainEqual(expect.stringMatching(/^storage {2}\| storage listening on http:/));
  expect(lines).toContainEqual(expect.stringMatching(`^etcdctl  \\| lease 0?${old} revoked$`));
  expect(lines).toContainEqual(
    expect.stringMatching(
      `^client 2 \\| ${time} successfully write a key to storage using lease ${current}$`,
    ),
  );
  expect(lines).toContainEqual(
    expect.stringMatching(
      `^client 1 \\| ${time} expected fail to write .* \\(${old}\\) .* \\(${current}\\)$`,
    ),
  );
  expect(lines.slice(-4)).toEqual([
    `reader   | {"val":"value from client 2","version":${BigInt(`0x${current}`)},"err":""}`,
    '',
    'Every line came as expected.',
    '',
  ]);
  await expect.poll(leftovers).toEqual([]);
});

test('Ctrl-C ends it with 130 and leaves nothing behind', async () => {
  const { program, leftovers } = await start(walkthrough, { tty: true });
  await program.line('please manually revoke', { timeout: 25_000 });
  if (process.platform === 'linux') expect(await leftovers()).not.toEqual([]);
  program.write('\x03');
  expect(await program.exited).toEqual({ code: 130, signal: null });
  expect(program.stdout).not.toContain('demo:');
  await expect.poll(leftovers).toEqual([]);
});

test.each([
  ['SIGTERM', 143, 'A private etcd has'],
  ['SIGINT', 130, 'storage listening'],
  ['SIGHUP', 129, 'client 1 starts'],
  ['SIGTERM', 143, 'client 2 starts'],
] as const)(
  '%s ends it with %i (at "%s") and leaves nothing behind',
  async (signal, code, line) => {
    const { program, leftovers } = await start(walkthrough);
    await program.line(line, { timeout: 25_000 });
    program.signal(signal);
    program.signal(signal);
    expect(await program.exited).toEqual({ code, signal: null });
    expect(program.stderr).toBe('');
    await expect.poll(leftovers).toEqual([]);
  },
);

test('a reader that goes away ends it and leaves nothing behind', async () => {
  const { program, leftovers } = await start([
    'bash',
    '-c',
    'set -o pipefail; "$@" | head -n 4',
    'bash',
    ...walkthrough,
  ]);
  expect(await program.exited).toEqual({ code: 141, signal: null });
  expect(program.stderr).toBe('');
  await expect.poll(leftovers).toEqual([]);
});

test('a line that is not the expected one ends it with 1, both lines and nothing left behind', async () => {
  const { program, leftovers } = await start(walkthrough, {
    env: await preload(`
      const write = process.stderr.write.bind(process.stderr);
      process.stderr.write = (text) => write(text.replace('this is client 2', 'this is nobody'));`),
  });
  expect(await program.exited).toEqual({ code: 1, signal: null });
  expect(program.stderr).toMatch(
    /^\ndemo: expected of client 2: <time> this is client 2, continuing\n {2}instead it printed: \S+ \S+ this is nobody, continuing\n$/,
  );
  await expect.poll(leftovers).toEqual([]);
});

test('a program that ends too early ends it with 1, the line that is missing and nothing left behind', async () => {
  const { program, leftovers } = await start(walkthrough, {
    env: await preload(`
      const write = process.stderr.write.bind(process.stderr);
      process.stderr.write = (text) => text.includes('resuming') ? process.exit(3) : write(text);`),
  });
  expect(await program.exited).toEqual({ code: 1, signal: null });
  expect(program.stderr).toBe(
    '\ndemo: expected of client 1: <time> resuming client 1\n  instead it ended (exit code 3)\n',
  );
  await expect.poll(leftovers).toEqual([]);
});

async function start([file = '', ...args]: string[], options: ProgramOptions = {}) {
  const traced = await trace();
  onTestFinished(() => traced[Symbol.asyncDispose]());
  const program = Program.start(file, args, {
    ...options,
    env: { FORCE_COLOR: undefined, ...options.env, ...traced.env },
  });
  onTestFinished(() => program[Symbol.asyncDispose]());
  return { program, leftovers: traced.leftovers };
}

/** Runs `script` in the clients before they start. */
async function preload(script: string): Promise<NonNullable<ProgramOptions['env']>> {
  const folder = await mkdtemp(join(tmpdir(), 'demo-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, 'preload.cjs');
  await writeFile(file, `if (/client.main\\.js$/.test(process.argv[1])) { ${script} }`);
  return { NODE_OPTIONS: `--require ${file}` };
}
