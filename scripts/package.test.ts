// The package as its users get it: packed, and installed from the registry into an empty project,
// where its README's example is run.

import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';

const run = promisify(execFile);
const root = join(import.meta.dirname, '..');
const source = join(root, 'client/concurrency');
const [endpoint = ''] = inject('etcd');

let project: string;
let files: string[];

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'package-test-'));
  // As the README says, but for the place.
  const args = ['pack', '--workspace', 'etcd-fenced-lock', '--json', '--pack-destination', project];
  const packed = await run('npm', args, { cwd: root });
  const [{ filename, files: list }] = JSON.parse(packed.stdout);
  files = list.map(({ path }: { path: string }) => path);
  await writeFile(join(project, 'package.json'), '{}');
  await run('npm', ['install', '--prefer-offline', filename], { cwd: project });
});

afterAll(async () => {
  await rm(project, { recursive: true, force: true });
});

test('the package holds the lock and nothing else', async () => {
  const other = files.filter((file) => !/^dist\/[a-z-]+\.(js|d\.ts)$/.test(file));
  expect(other.sort()).toEqual(['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json']);
  const names = (await readdir(source)).filter((name) => /(?<!\.test)\.ts$/.test(name));
  const built = names.flatMap((name) => ['js', 'd.ts'].map((end) => name.replace(/ts$/, end)));
  expect(files.filter((file) => !other.includes(file)).sort()).toEqual(
    built.map((name) => `dist/${name}`).sort(),
  );
  const license = (folder: string) => readFile(join(folder, 'LICENSE'), 'utf8');
  expect(await license(source)).toBe(await license(root));
});

test('it brings at most 40 packages and 16 MB, and no program named client or storage', async () => {
  const lock = JSON.parse(await readFile(join(project, 'node_modules/.package-lock.json'), 'utf8'));
  const packages = Object.keys(lock.packages);
  expect(packages).toContain('node_modules/etcd-fenced-lock');
  expect(packages.length).toBeLessThanOrEqual(40);
  expect(await size(join(project, 'node_modules'))).toBeLessThanOrEqual(16e6);
  const programs = await readdir(join(project, 'node_modules/.bin'));
  expect(programs).not.toContain('client');
  expect(programs).not.toContain('storage');
});

test('npm and publint have nothing to say about it', async () => {
  // In a copy: the build of this one is in use.
  const copy = join(project, 'copy');
  await cp(join(project, 'node_modules/etcd-fenced-lock'), copy, { recursive: true });
  const manifest = JSON.parse(await readFile(join(copy, 'package.json'), 'utf8'));
  // Above all that has been published.
  await writeFile(join(copy, 'package.json'), JSON.stringify({ ...manifest, version: '999.0.0' }));
  const args = ['publish', '--dry-run', '--ignore-scripts', '--json', '--loglevel', 'warn'];
  const { stderr } = await run('npm', args, { cwd: copy });
  expect(stderr.replace(/^.* requires you to be logged in .*\n/m, '')).toBe('');
  const { messages, pkg } = await publint({ pkgDir: copy });
  expect(messages.map((message) => formatMessage(message, pkg ?? {}))).toEqual([]);
});

test.each(['import', 'require'])(
  'its README’s example writes with its token, by %s',
  async (by) => {
    const text = await readFile(join(project, 'node_modules/etcd-fenced-lock/README.md'), 'utf8');
    const [, example = ''] = /^```js\n(.*?)^```$/ms.exec(text) ?? [];
    const program = example.replace('http://127.0.0.1:2379', endpoint).replace('/lock', `/${by}`);
    const [file, lines] =
      by === 'import'
        ? (['example.mjs', program] as const)
        : (['example.cjs', required(program)] as const);
    await writeFile(join(project, file), lines);
    const { stdout, stderr } = await run('node', [file], { cwd: project });
    expect(stdout).toMatch(/^written with token \d+\n$/);
    expect(stderr).toBe('');
    // Its types are right for this kind of module, too.
    const typed = file.replace('js', 'ts');
    await writeFile(join(project, typed), by === 'import' ? program : wrapped(program));
    const flags = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022'];
    await run(join(root, 'node_modules/.bin/tsc'), [...flags, '--types', 'node', typed], {
      cwd: project,
    }).catch((error) => expect.fail(error.stdout));
  },
);

/** The same as CommonJS, which has no `import` and no `await` outside of functions. */
function required(program: string): string {
  return wrapped(program).replace(/^import (.*) from (.*);$/m, 'const $1 = require($2);');
}

function wrapped(program: string): string {
  return program.replace(/^(import [^;]*;)\n(.*)$/s, '$1\n(async () => {$2})();');
}

/** Bytes, as `du --apparent-size` without folders. */
async function size(folder: string): Promise<number> {
  const names = await readdir(folder, { recursive: true });
  const all = await Promise.all(names.map((name) => stat(join(folder, name))));
  return all.reduce((sum, one) => sum + (one.isFile() ? one.size : 0), 0);
}
