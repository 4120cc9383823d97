import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { type Etcd, type EtcdOptions, PortTakenError, startEtcd } from './etcd.js';

async function start(options?: EtcdOptions): Promise<Etcd> {
  const etcd = await startEtcd(options);
  onTestFinished(() => etcd.stop());
  return etcd;
}

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'etcd-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  return folder;
}

function only<T>(items: readonly T[]): T {
  const [item] = items;
  if (item === undefined) throw new Error('expected at least one');
  return item;
}

test('it keeps what is written over a kill and a restart on the same port', async () => {
  const etcd = await start();
  const member = only(etcd.members);
  expect(await etcd.ctl('put', 'a', 'b')).toBe('OK\n');
  const { pid } = member;
  await member.restart();
  expect(member.pid).not.toBe(pid);
  expect(await etcd.ctl('get', 'a', '--print-value-only')).toBe('b\n');
  await member.kill();
  await expect(etcd.ctl('get', 'a', '--command-timeout=200ms')).rejects.toThrow('etcdctl');
});

test('it grants leases as an etcd with default settings does', async () => {
  const etcd = await start();
  expect(await etcd.ctl('lease', 'grant', '1')).toMatch(
    /^lease [0-9a-f]+ granted with TTL\(2s\)$/m,
  );
});

test('a paused member does not answer until it is resumed', async () => {
  const etcd = await start();
  const member = only(etcd.members);
  member.pause();
  await expect(etcd.ctl('get', 'a', '--command-timeout=200ms')).rejects.toThrow(/deadline/);
  member.resume();
  expect(await etcd.ctl('get', 'a', '--command-timeout=10s')).toBe('');
});

test('three members go on when one is killed', async () => {
  const etcd = await start({ members: 3 });
  expect(new Set(etcd.endpoints).size).toBe(3);
  expect(etcd.members.map(({ endpoint }) => endpoint)).toEqual(etcd.endpoints);
  await only(etcd.members).kill();
  // A call under way while a new leader is elected may fail.
  await vi.waitFor(() => etcd.ctl('put', 'a', 'b'), { timeout: 20_000 });
});

test('stopping leaves no process and no folder', async () => {
  const tmp = await temporaryFolder();
  vi.stubEnv('TMPDIR', tmp);
  onTestFinished(() => void vi.unstubAllEnvs());
  const etcd = await start();
  const { pid } = only(etcd.members);
  expect(await readdir(tmp)).toHaveLength(1);
  await etcd.stop();
  expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  expect(await readdir(tmp)).toEqual([]);
  await etcd.stop();
});

test('a data folder that was given stays, and can be used again', async () => {
  const dataDir = await temporaryFolder();
  const first = await start({ dataDir });
  await first.ctl('put', 'a', 'b');
  await first.stop();
  const second = await start({ dataDir });
  expect(await second.ctl('get', 'a', '--print-value-only')).toBe('b\n');
});

test('a given port that another etcd uses is told as such', async () => {
  const other = await start();
  const clientPort = Number(new URL(only(other.endpoints)).port);
  await expect(startEtcd({ clientPort })).rejects.toThrow(PortTakenError);
});

test('an etcd that does not start quotes its output', async () => {
  await expect(startEtcd({ args: ['--no-such-flag'] })).rejects.toThrow(
    /exit code[\s\S]*not defined: -no-such-flag/,
  );
});
