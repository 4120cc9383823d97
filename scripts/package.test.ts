// The package as its users get it: packed, and unpacked into an empty project that has nothing but
// the dependencies that package.json declares.

import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { afterAll, beforeAll, expect, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');

let project: string;
let files: string[];

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'package-test-'));
  const modules = join(project, 'node_modules');
  const home = join(modules, 'etcd-fenced-lock');
  await mkdir(home, { recursive: true });
  const cache = ['--cache', join(project, '.npm')];
  const args = ['pack', '--json', '--pack-destination', project, ...cache];
  const packed = await run('npm', args, { cwd: root });
  const [{ filename, files: list }] = JSON.parse(packed.stdout);
  files = list.map(({ path }: { path: string }) => path);
  await run('tar', ['-xzf', join(project, filename), '-C', home, '--strip-components=1']);
  const { dependencies } = JSON.parse(await readFile(join(home, 'package.json'), 'utf8'));
  // @types/node stands for what a TypeScript project brings itself.
  for (const name of [...Object.keys(dependencies), '@types/node']) {
    await mkdir(dirname(join(modules, name)), { recursive: true });
    await symlink(join(root, 'node_modules', name), join(modules, name));
  }
});

afterAll(async () => {
  await rm(project, { recursive: true, force: true });
});

test('the package holds what users need and nothing else', () => {
  expect(files).toContain('dist/client/main.js');
  expect(files).toContain('dist/storage/main.js');
  expect(files).toContain('dist/storage/page/script.js');
  expect(files).toContain('dist/client/concurrency/index.d.ts');
  const other = files.filter((file) => !/^dist\/(client|storage)\/.*\.(js|d\.ts)$/.test(file));
  expect(other.sort()).toEqual([
    'LICENSE',
    'README.md',
    'dist/client/LICENSES.md',
    'dist/storage/page/icon.svg',
    'dist/storage/page/index.html',
    'dist/storage/page/style.css',
    'package.json',
  ]);
  expect(files.filter((file) => /test|contract/.test(file))).toEqual([]);
});

test('publint has nothing to say about it', async () => {
  const { messages, pkg } = await publint({
    pkgDir: join(project, 'node_modules/etcd-fenced-lock'),
  });
  expect(messages.map((message) => formatMessage(message, pkg ?? {}))).toEqual([]);
});

test.each([
  ['import', 'm', "import { connect, Mutex } from 'etcd-fenced-lock';"],
  ['require', 'c', "const { connect, Mutex } = require('etcd-fenced-lock');"],
])('it works by %s', async (_, kind, line) => {
  const file = join(project, `use.${kind}js`);
  await writeFile(file, `${line} console.log(typeof connect, typeof Mutex);`);
  const { stdout, stderr } = await run('node', [file], { cwd: project });
  expect(stderr).toBe('');
  expect(stdout).toBe('function function\n');
});

test('its types are right for both kinds of module', async () => {
  const use = `
    import { connect, type Leader, LockConflict, Mutex, Session, withLock } from 'etcd-fenced-lock';
    export async function use(leader: Leader): Promise<bigint> {
      const etcd = await connect({ endpoints: ['http://127.0.0.1:2379'] });
      const session = await Session.create(etcd, { ttl: 10 });
      const mutex: Mutex = new Mutex(session, '/lock');
      await mutex.lock({ timeout: 1 });
      const code: string = new LockConflict('/lock').code;
      const length: number = await withLock(session, '/lock', {}, ({ token }) => code.length);
      return mutex.token + leader.token + BigInt(length);
    }`;
  await writeFile(join(project, 'use.mts'), use);
  await writeFile(join(project, 'use.cts'), use);
  const flags = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022'];
  const tsc = join(root, 'node_modules/.bin/tsc');
  await run(tsc, [...flags, '--skipLibCheck', '--types', 'node', 'use.mts', 'use.cts'], {
    cwd: project,
  }).catch((error) => expect.fail(error.stdout));
});

test.each(['client', 'storage'])('its program %s says what it is', async (name) => {
  const main = join(project, 'node_modules/etcd-fenced-lock/dist', name, 'main.js');
  const { stdout } = await run('node', [main, '--help'], { cwd: project });
  expect(stdout).toMatch(new RegExp(`^Usage: ${name} `));
});
