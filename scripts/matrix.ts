// `npm run matrix`: the tests on other versions of Node.js, taken from npm, and on each etcd in the
// folders that ETCD_BIN_DIR lists (separated as in PATH; without it, on the one that the set-up finds).
// One run after the other, since they share the build; at the end a table of them all.

import { spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { arch, env, exit, platform } from 'node:process';
import { Command } from 'commander';
import { temporaryFolder } from './lib/folder.js';

const root = join(import.meta.dirname, '..');
const own = env.ETCD_BIN_DIR;

interface Row {
  node: string;
  etcd: string;
  passed: number;
  failed: number;
  skipped: number;
  seconds: number;
}

new Command('matrix')
  .argument('[tests...]', 'only the files whose path contains one of these')
  .option('--node <versions>', 'versions of Node.js, separated by commas', '20.19,22,24,26')
  .action(async (tests: string[], { node }: { node: string }) => {
    const rows: Row[] = [];
    const etcds = own?.split(delimiter) ?? [''];
    const bins = node.split(',').map(provide);
    try {
      for (const bin of bins) {
        for (const etcd of etcds) rows.push(await play(bin, etcd, tests));
      }
    } finally {
      // The etcd that was linked last is not the one that the next command is to find.
      run('bash', ['scripts/setup.sh'], { ETCD_BIN_DIR: etcds[0] });
      console.table(rows);
    }
    exit(rows.every(({ passed, failed }) => passed > 0 && failed === 0) ? 0 : 1);
  })
  .parse();

/** The folder with the newest `node` of this version that npm has. */
function provide(version: string): string {
  const name = `node-${platform}-${arch}`;
  const folder = join(root, '.cache/node', version);
  const bin = join(folder, 'node_modules', name, 'bin');
  const flags = ['--no-save', '--ignore-scripts', '--no-audit', '--no-fund'];
  const status = run('npm', ['install', '--prefix', folder, ...flags, `${name}@${version}`]);
  if (status !== 0) throw new Error(`cannot get ${name}@${version} from npm`);
  return bin;
}

async function play(bin: string, etcd: string, tests: string[]): Promise<Row> {
  await using folder = await temporaryFolder();
  const report = join(folder.path, 'report.json');
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const there = { ETCD_BIN_DIR: etcd, PATH: `${bin}${delimiter}${env.PATH}` };
  const begin = performance.now();
  const status = run(
    'npm',
    ['test', '--silent', '--', '--allowOnly=false', ...reporters, ...tests],
    there,
  );
  const seconds = Math.round((performance.now() - begin) / 1000);
  const counts = await readFile(report, 'utf8').then(JSON.parse, () => undefined);
  const failed = counts?.numFailedTests ?? 0;
  return {
    node: says(join(bin, 'node'), '--version'),
    etcd: says(join(etcd || join(root, '.cache/bin'), 'etcd'), '--version'),
    passed: counts?.numPassedTests ?? 0,
    // What fails outside of a test, fails too.
    failed: status === 0 ? failed : failed || 1,
    skipped: counts?.numPendingTests ?? 0,
    seconds,
  };
}

function says(program: string, question: string): string {
  const { stdout } = spawnSync(program, [question], { encoding: 'utf8' });
  return /\d+\.\d+\.\d+/.exec(stdout)?.[0] ?? 'unknown';
}

function run(program: string, args: string[], variables: NodeJS.ProcessEnv = {}): number | null {
  const options = { cwd: root, env: { ...env, ...variables } };
  return spawnSync(program, args, { ...options, stdio: ['ignore', 'inherit', 'inherit'] }).status;
}
