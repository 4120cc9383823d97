// Runs setup.sh on a project of a few files, in a folder with spaces in its path. No network: npm,
// tsc, vite, apt-get, dpkg, brew and etcd are stand-ins that note their calls, and PATH has nothing but
// them and the few system tools that the script uses.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import {
  copyFile,
  mkdir,
  mkdtemp,
  readFile,
  readlink,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { Program } from './lib/program.js';

test('from nothing it installs, builds and fetches etcd; the second time there is nothing to do', async () => {
  const project = await Project.create();
  expect(await project.setUp()).toEqual({
    code: 0,
    said: [
      'installing npm packages',
      'building',
      'fetching the packages etcd-server and etcd-client, to unpack them into .cache/etcd',
      `using ${project.path('.cache/etcd/usr/bin/etcd')}`,
      `using ${project.path('.cache/etcd/usr/bin/etcdctl')}`,
    ],
    rest: [],
  });
  expect(await project.calls()).toEqual([
    expect.stringMatching(/^npm config get cache$/),
    expect.stringMatching(/^npm ci --include=dev --ignore-scripts /),
    expect.stringMatching(/^tsc -p scripts\/tsconfig.build.json /),
    expect.stringMatching(/^vite build --config scripts\/bundle\/vite.config.ts /),
    expect.stringMatching(/^apt-get .*download etcd-server etcd-client$/),
    expect.stringMatching(/^dpkg -x .*etcd-client.deb /),
    expect.stringMatching(/^dpkg -x .*etcd-server.deb /),
  ]);
  for (const program of ['dist/client/main.js', 'dist/storage/main.js', '.cache/bin/etcd']) {
    execFileSync(project.path(program));
  }
  expect(await project.setUp()).toEqual({ code: 0, said: [], rest: [] });
  expect(await project.calls()).toEqual([]);
});

test('to build asks for no etcd: who packs the library may have none', async () => {
  const project = await Project.create();
  await project.remove('apt-get');
  const { code, said } = await project.setUp({}, 'build');
  expect({ code, said }).toEqual({ code: 0, said: ['installing npm packages', 'building'] });
  expect(existsSync(project.path('client/concurrency/dist/index.js'))).toBe(true);
});

test('packages are installed again when package-lock.json or node_modules changed', async () => {
  const project = await Project.create();
  await project.setUp();
  await project.write('package-lock.json', '{ "changed": true }');
  expect((await project.setUp()).said).toEqual(['installing npm packages', 'building']);
  await rm(project.path('node_modules'), { recursive: true });
  expect((await project.setUp()).said).toEqual(['installing npm packages']);
  const future = new Date(Date.now() + 60_000);
  await utimes(project.path('node_modules/.package-lock.json'), future, future);
  expect((await project.setUp()).said).toEqual(['installing npm packages']);
});

test('a failed installation is tried again', async () => {
  const project = await Project.create();
  await project.program('npm', 'exit 7');
  expect(await project.setUp()).toMatchObject({ code: 7, said: ['installing npm packages'] });
  expect(await project.setUp()).toMatchObject({ code: 7, said: ['installing npm packages'] });
});

test('an unwritable cache of npm is replaced by one of the project', async () => {
  const project = await Project.create();
  await project.write('no folder', '');
  await project.setUp({ NPM_CACHE: project.path('no folder/npm') });
  const calls = await project.calls();
  expect(calls).toContainEqual(
    expect.stringMatching(/^npm ci .*--cache .+\/with spaces\/project\/\.cache\/npm$/),
  );
});

test('it builds again when a source changed, came or went, and leaves no stale output', async () => {
  const project = await Project.create();
  await project.write('client/concurrency/gone.ts', '');
  await project.setUp();
  const gone = ['dist/client/concurrency/gone.js', 'client/concurrency/dist/gone.js'];
  for (const file of gone) expect(existsSync(project.path(file))).toBe(true);
  await rm(project.path('client/concurrency/gone.ts'));
  expect((await project.setUp()).said).toEqual(['building']);
  for (const file of gone) expect(existsSync(project.path(file))).toBe(false);
  await rm(project.path('client/concurrency/dist'), { recursive: true });
  expect((await project.setUp()).said).toEqual(['building']);
  await project.write('storage/main.ts', 'changed');
  expect((await project.setUp()).said).toEqual(['building']);
  await project.write('scripts/tsconfig.build.json', '{ "changed": true }');
  expect((await project.setUp()).said).toEqual(['building']);
  await project.write('scripts/bundle/vite.config.ts', 'changed');
  expect((await project.setUp()).said).toEqual(['building']);
  await rm(project.path('dist/client/main.js'));
  expect((await project.setUp()).said).toEqual(['building']);
  await project.write('client/main.test.ts', 'changed');
  expect((await project.setUp()).said).toEqual([]);
});

test('the files of the page are part of the build, and a change of one is noticed', async () => {
  const project = await Project.create();
  await project.setUp();
  const built = (kind: string) => readFile(project.path(`dist/storage/page/a.${kind}`), 'utf8');
  for (const kind of PAGE) expect(await built(kind)).toBe(kind);
  for (const kind of PAGE) {
    await project.write(`storage/page/a.${kind}`, 'changed');
    expect((await project.setUp()).said).toEqual(['building']);
    expect(await built(kind)).toBe('changed');
  }
});

test('a failed build is told, keeps the last good one and is tried again', async () => {
  const project = await Project.create();
  await project.setUp();
  await project.write('client/main.ts', 'type error');
  expect(await project.setUp()).toMatchObject({ code: 2, said: ['building'] });
  expect(await project.setUp()).toMatchObject({ code: 2, said: ['building'] });
  execFileSync(project.path('dist/client/main.js'));
});

test('an etcd on PATH is taken, also from two folders', async () => {
  const project = await Project.create();
  await project.etcd('some where/etcd', '3.4.0');
  await project.etcd('else where/etcdctl', '3.10.1');
  const path = { PATH: `${project.path('some where')}:${project.path('else where')}` };
  expect((await project.setUp(path)).said.slice(2)).toEqual([
    `using ${project.path('some where/etcd')}`,
    `using ${project.path('else where/etcdctl')}`,
  ]);
  expect((await project.setUp(path)).said).toEqual([]);
  expect((await project.setUp()).said).toContainEqual(expect.stringMatching(/^fetching /));
});

test.each([
  ['an old etcd', '3.3.25', '4.0.0', /etcd is version 3\.3\.25, and 3\.4 or newer is needed/],
  ['an old etcdctl', '3.5.16', '2.9.9', /etcdctl is version 2\.9\.9, and 3\.4 or newer is needed/],
  ['no etcdctl', '3.5.16', undefined, /there is no etcdctl/],
  ['an etcd that does not run', 'broken', '3.5.16', /does not tell its version: broken/],
])('%s on PATH is told and passed over', async (_, etcd, etcdctl, why) => {
  const project = await Project.create();
  await project.etcd('old/etcd', etcd);
  if (etcdctl !== undefined) await project.etcd('old/etcdctl', etcdctl);
  const path = { PATH: project.path('old') };
  const { code, said } = await project.setUp(path);
  expect(code).toBe(0);
  expect(said[2]).toMatch(/^not taking etcd from PATH: /);
  expect(said[2]).toMatch(why);
  expect(await readlink(project.path('.cache/bin/etcd'))).toContain('/.cache/etcd/');
  expect((await project.setUp(path)).said).toEqual([]);
});

test('ETCD_BIN_DIR goes before everything else', async () => {
  const project = await Project.create();
  await project.setUp();
  for (const folder of ['on path', 'given']) {
    await project.etcd(`${folder}/etcd`, '3.6.1');
    await project.etcd(`${folder}/etcdctl`, '3.6.1');
  }
  const given = { PATH: project.path('on path'), ETCD_BIN_DIR: project.path('given') };
  expect(await project.setUp(given)).toEqual({
    code: 0,
    said: [`using ${project.path('given/etcd')}`, `using ${project.path('given/etcdctl')}`],
    rest: [],
  });
  expect(await project.setUp(given)).toEqual({ code: 0, said: [], rest: [] });
});

test.each([
  ['is missing', undefined, /no folder/],
  ['is empty', [], /there is no etcd in/],
  ['lacks etcdctl', ['etcd'], /there is no etcdctl in/],
] as const)('an ETCD_BIN_DIR that %s is an error', async (_, names, why) => {
  const project = await Project.create();
  await project.setUp();
  if (names) await mkdir(project.path('given'));
  for (const name of names ?? []) await project.etcd(`given/${name}`, '3.5.16');
  const { code, said } = await project.setUp({ ETCD_BIN_DIR: project.path('given') });
  expect(code).toBe(1);
  expect(said).toHaveLength(1);
  expect(said[0]).toMatch(/^ETCD_BIN_DIR /);
  expect(said[0]).toMatch(why);
});

test('an ETCD_BIN_DIR with an old etcd is an error', async () => {
  const project = await Project.create();
  await project.etcd('given/etcd', '3.3.25');
  await project.etcd('given/etcdctl', '3.3.25');
  const { code, said } = await project.setUp({ ETCD_BIN_DIR: project.path('given') });
  expect(code).toBe(1);
  expect(said.at(-1)).toMatch(/3\.3\.25, and 3\.4 or newer is needed/);
});

test("the user's settings for etcd do not reach it", async () => {
  const project = await Project.create();
  await project.program('etcd', '[ -z "$ETCD_NAME" ] && echo "etcd Version: 3.5.16"');
  await project.program('etcdctl', '[ -z "$ETCDCTL_API" ] && echo "etcdctl version: 3.5.16"');
  const { code, said } = await project.setUp({ ETCD_NAME: 'mine', ETCDCTL_API: '2' });
  expect({ code, said: said.slice(2) }).toEqual({
    code: 0,
    said: [`using ${project.path('bin/etcd')}`, `using ${project.path('bin/etcdctl')}`],
  });
});

test('without package lists of the system it fetches lists of its own', async () => {
  const project = await Project.create();
  await project.program(
    'apt-get',
    'case "$*" in *Dir::State::Lists*) touch etcd-server.deb etcd-client.deb ;; *) exit 100 ;; esac',
  );
  expect((await project.setUp()).code).toBe(0);
  const calls = await project.calls();
  expect(calls.filter((call) => call.startsWith('apt-get'))).toEqual([
    expect.stringMatching(/ download etcd-server etcd-client$/),
    expect.stringMatching(/Dir::State::Lists=.* update$/),
    expect.stringMatching(/Dir::State::Lists=.* download etcd-server etcd-client$/),
  ]);
  expect(existsSync(project.path('.cache/apt'))).toBe(false);
});

test('what apt-get says is shown when it fails, with what to do', async () => {
  const project = await Project.create();
  await project.program('apt-get', 'echo "E: no such thing" >&2; exit 100');
  const { code, said, rest } = await project.setUp();
  expect(code).toBe(1);
  expect(rest).toContain('E: no such thing');
  expect(said.join(' ')).toMatch(/3\.4 or newer, are needed.*ETCD_BIN_DIR/);
});

test('packages that are too old are told, with what to do', async () => {
  const project = await Project.create({ packaged: '3.3.25' });
  const { code, said } = await project.setUp();
  expect(code).toBe(1);
  expect(said.join(' ')).toMatch(
    /fetched packages do not do: .* is version 3\.3\.25.*ETCD_BIN_DIR/,
  );
});

test('where there is no apt-get Homebrew installs etcd', async () => {
  const project = await Project.create();
  await project.remove('apt-get', 'dpkg');
  await project.program('brew', `case $1 in --prefix) echo "$PROJECT/brew" ;; esac`);
  await project.etcd('brew/bin/etcd', '3.6.1');
  await project.etcd('brew/bin/etcdctl', '3.6.1');
  expect((await project.setUp()).said.slice(2)).toEqual([
    'installing etcd with Homebrew',
    `using ${project.path('brew/bin/etcd')}`,
    `using ${project.path('brew/bin/etcdctl')}`,
  ]);
  expect(await project.calls()).toContain('brew install --quiet etcd');
});

test('where there is nothing to fetch etcd with it says what to do', async () => {
  const project = await Project.create();
  await project.remove('apt-get', 'dpkg');
  const { code, said } = await project.setUp();
  expect(code).toBe(1);
  expect(said.join(' ')).toMatch(/3\.4 or newer, are needed.*ETCD_BIN_DIR/);
});

test.each(['flock', 'perl'])('of two at once, one does the work (locking by %s)', async (tool) => {
  const project = await Project.create();
  await project.remove(tool === 'perl' ? 'flock' : 'perl');
  const results = await Promise.all([project.setUp(), project.setUp()]);
  expect(results.map(({ code }) => code)).toEqual([0, 0]);
  const calls = await project.calls();
  for (const call of [/^npm ci/, /^tsc/, /^vite/, /^apt-get/]) {
    expect(calls.filter((made) => call.test(made))).toHaveLength(1);
  }
});

const NAMES =
  'bash cat chmod cksum cmp cp dirname find flock grep ln mkdir mv perl readlink rm sort touch uname';
/** The paths of those that this system has. */
const TOOLS = execFileSync('bash', ['-c', `type -P ${NAMES} || true`], { encoding: 'utf8' })
  .trim()
  .split('\n');

/** What the page is made of, beside TypeScript. */
const PAGE = ['html', 'css', 'js', 'svg'];

class Project {
  static async create({ packaged = '3.4.23' } = {}): Promise<Project> {
    const folder = await mkdtemp(join(tmpdir(), 'setup-test-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const project = new Project(join(folder, 'with spaces/project'));
    await mkdir(project.path('bin'), { recursive: true });
    await symlink(process.execPath, project.path('bin/node'));
    for (const tool of TOOLS) await symlink(tool, project.path(`bin/${basename(tool)}`));
    await project.write('package-lock.json', '{}');
    await project.write('tsconfig.json', '{}');
    await project.write('scripts/tsconfig.build.json', '{}');
    await project.write('scripts/bundle/vite.config.ts', '');
    await project.write('client/main.ts', '');
    await project.write('client/concurrency/index.ts', '');
    await project.write('storage/main.ts', '');
    for (const kind of PAGE) await project.write(`storage/page/a.${kind}`, kind);
    await copyFile(
      fileURLToPath(new URL('./setup.sh', import.meta.url)),
      project.path('scripts/setup.sh'),
    );
    await project.program(
      'npm',
      `case $1 in
         config) echo "\${NPM_CACHE:-$PROJECT/npm cache}" ;;
         ci)
           mkdir -p node_modules/.bin
           echo '{}' >node_modules/.package-lock.json
           cp "$PROJECT/bin/fake-tsc" node_modules/.bin/tsc
           cp "$PROJECT/bin/fake-vite" node_modules/.bin/vite ;;
       esac`,
    );
    await project.program(
      'fake-tsc',
      `if grep -q 'type error' client/*.ts; then exit 2; fi
       for source in client/*.ts client/concurrency/*.ts storage/*.ts; do
         mkdir -p "$4/$(dirname "$source")"
         echo '#!/bin/sh' >"$4/\${source%.ts}.js"
       done`,
    );
    await project.program('fake-vite', '[ -e "$5/main.js" ]');
    await project.program('apt-get', 'touch etcd-server.deb etcd-client.deb');
    await project.etcd('etcd', packaged);
    await project.program(
      'dpkg',
      `mkdir -p "$3/usr/bin"
       case $2 in *server*) cp "$PROJECT/etcd" "$3/usr/bin/etcd" ;; *) cp "$PROJECT/etcd" "$3/usr/bin/etcdctl" ;; esac`,
    );
    return project;
  }

  private constructor(private readonly root: string) {}

  path(name: string): string {
    return join(this.root, name);
  }

  async write(name: string, text: string, mode = 0o644): Promise<void> {
    await mkdir(dirname(this.path(name)), { recursive: true });
    await writeFile(this.path(name), text, { mode });
  }

  /** A program on PATH that notes that it was called. */
  async program(name: string, script: string): Promise<void> {
    const note = `echo "\${0##*/} $*" >>"$PROJECT/calls"`;
    await rm(this.path(`bin/${name}`), { force: true });
    await this.write(`bin/${name}`, `#!/bin/bash\n${note}\n${script}\n`, 0o755);
  }

  async remove(...names: string[]): Promise<void> {
    for (const name of names) await rm(this.path(`bin/${name}`), { force: true });
  }

  /** What stands in for etcd or etcdctl of this version. */
  async etcd(name: string, version: string): Promise<void> {
    const text = /^\d/.test(version) ? `etcd Version: ${version}` : version;
    await this.write(name, `#!/bin/bash\necho '${text}'\n`, 0o755);
  }

  /** Runs setup.sh: its exit code, what it said itself, and what else came on standard error. */
  async setUp({ PATH, ...env }: Record<string, string> = {}, ...args: string[]) {
    const path = PATH === undefined ? this.path('bin') : `${PATH}:${this.path('bin')}`;
    const variables = { ...env, PATH: path, PROJECT: this.root };
    await using program = Program.start(
      '/usr/bin/env',
      [
        '-i',
        ...Object.entries(variables).map((variable) => variable.join('=')),
        this.path('bin/bash'),
        this.path('scripts/setup.sh'),
        ...args,
      ],
      { cwd: '/' },
    );
    const { code } = await program.exited;
    const lines = program.stderr.split('\n');
    const said = lines.filter((line) => line.startsWith('setup: '));
    const rest = lines.filter((line) => line !== '' && !said.includes(line));
    return { code, said: said.map((line) => line.slice('setup: '.length)), rest };
  }

  /** The calls since the last time it was asked. */
  async calls(): Promise<string[]> {
    const calls = await readFile(this.path('calls'), 'utf8').catch(() => '');
    await rm(this.path('calls'), { force: true });
    return calls.split('\n').filter((call) => call !== '');
  }
}
