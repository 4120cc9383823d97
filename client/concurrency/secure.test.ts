// An etcd that asks who we are: TLS with certificates on both sides, users and roles, tokens that
// run out. Each test has an etcd of its own, since these settings hold for all of it.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generate } from 'selfsigned';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type Etcd, startEtcd, type TlsFiles } from '../../scripts/lib/etcd.js';
import { startClient } from '../../scripts/lib/program.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { connect } from './connect.js';
import { Election } from './election.js';
import { PermissionDenied, Unreachable } from './errors.js';
import { LeaseLock } from './lease-lock.js';
import { Mutex } from './mutex.js';
import { Session } from './session.js';

describe('over TLS', () => {
  let folder: string;
  let tls: TlsFiles;
  let etcd: Etcd;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'secure-test-'));
    tls = await makeCertificates(folder);
    etcd = await startEtcd({ tls });
  });

  afterAll(async () => {
    await etcd?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test('a client with the right certificates takes the lock', async () => {
    const { ca: cacert, cert, key } = tls;
    const client = await connect({ endpoints: etcd.endpoints, cacert, cert, key });
    await using session = await Session.create(client, { ttl: 5 });
    const [a, b] = [new Mutex(session, '/tls'), new Mutex(session, '/tls')];
    await a.lock();
    await b.lock();
    expect(b.token).toBe(a.token);
    await session.close();
    client.close();
  });

  test('a client without a certificate, or that does not trust etcd’s, is told in time', async () => {
    const { endpoints } = etcd;
    const { ca: cacert, cert, key } = tls;
    const timeout = 1500;
    await expect(connect({ endpoints, cacert, timeout })).rejects.toThrow(Unreachable);
    await expect(connect({ endpoints, cert, key, timeout })).rejects.toThrow(/certificate/);
    const plain = endpoints.map((endpoint) => endpoint.replace('https:', 'http:'));
    await expect(connect({ endpoints: plain, timeout })).rejects.toThrow(Unreachable);
  });

  test('options that cannot go together are refused before anything is sent', async () => {
    const { endpoints } = etcd;
    const { ca: cacert, cert } = tls;
    await expect(connect({ endpoints, cert })).rejects.toThrow(
      'expected cert and key together, got only cert',
    );
    await expect(connect({ endpoints: ['127.0.0.1:1'], cacert })).rejects.toThrow(
      'expected https endpoints with certificates, got http://127.0.0.1:1',
    );
    const mixed = ['https://127.0.0.1:1', 'http://127.0.0.1:2'];
    await expect(connect({ endpoints: mixed })).rejects.toThrow(
      'expected all endpoints to be http or all https',
    );
    await expect(connect({ endpoints, cacert: join(folder, 'none') })).rejects.toThrow('ENOENT');
  });

  test.each([
    [
      'options',
      (tls: TlsFiles) => ({ args: ['--cacert', tls.ca, '--cert', tls.cert, '--key', tls.key] }),
    ],
    [
      'variables',
      (tls: TlsFiles) => ({
        env: { ETCDCTL_CACERT: tls.ca, ETCDCTL_CERT: tls.cert, ETCDCTL_KEY: tls.key },
      }),
    ],
  ] as const)('`client` takes etcdctl’s %s', async (_, how) => {
    const given: { args?: string[]; env?: Record<string, string> } = how(tls);
    const args = ['--endpoints', etcd.endpoints.join(','), ...(given.args ?? [])];
    await using client = startClient(1, args, { env: given.env ?? {} });
    await client.line('acquired lock');
  });

  test('`client` names the file that is not there', async () => {
    const args = ['--endpoints', etcd.endpoints.join(','), '--cacert', '/none.pem'];
    await using client = startClient(2, args);
    await client.line(/failed to create an etcd client: .*\/none\.pem/);
    expect((await client.exited).code).toBe(1);
  });
});

describe('with authentication', () => {
  let etcd: Etcd;

  beforeAll(async () => {
    etcd = await startEtcd({ args: ['--auth-token-ttl', '3'] });
    await etcd.ctl('role', 'add', 'locker');
    await etcd.ctl('role', 'grant-permission', 'locker', 'readwrite', '/mine/', '--prefix');
    for (const user of ['root:root', 'alice:secret']) await etcd.ctl('user', 'add', user);
    await etcd.ctl('user', 'grant-role', 'root', 'root');
    await etcd.ctl('user', 'grant-role', 'alice', 'locker');
    await etcd.ctl('auth', 'enable');
  });

  afterAll(() => etcd?.stop());

  const alice = () => connect({ endpoints: etcd.endpoints, user: 'alice:secret' });

  test('a permission on the lock’s prefix is all a lock and an election need', async () => {
    const client = await alice();
    const a = await Session.create(client, { ttl: 5 });
    const b = await Session.create(client, { ttl: 5 });
    const [first, second] = [new Mutex(a, '/mine/lock'), new Mutex(b, '/mine/lock')];
    await first.lock();
    const waiting = second.lock();
    await first.unlock();
    await waiting;
    const election = new Election(a, '/mine/election');
    await election.campaign('alice');
    expect((await election.leader()).value).toBe('alice');
    await a.close();
    await b.close();
    client.close();
  });

  test('another lock is forbidden, which is neither held nor lost nor unreachable', async () => {
    const client = await alice();
    await using session = await Session.create(client, { ttl: 5 });
    const mutex = new Mutex(session, '/theirs');
    await expect(mutex.lock()).rejects.toThrow(PermissionDenied);
    await expect(mutex.tryLock()).rejects.toThrow('etcdserver: permission denied');
    const election = new Election(session, '/theirs');
    await expect(election.leader()).rejects.toThrow(PermissionDenied);
    expect(session.expired).toBe(false);
    await session.close();
    client.close();
  });

  test('a release that etcd refuses is told as that, not as a loss', async () => {
    const client = await alice();
    const session = await Session.create(client, { ttl: 5 });
    const mutex = new Mutex(session, '/mine/refused');
    await mutex.lock();
    const lock = new LeaseLock(client, '/mine/refused too');
    await lock.acquire();
    const root = ['--user', 'root:root'];
    await etcd.ctl(...root, 'role', 'revoke-permission', 'locker', '/mine/', '--prefix');
    try {
      await expect(mutex.unlock()).rejects.toThrow(PermissionDenied);
      await expect(lock.release()).rejects.toThrow(PermissionDenied);
    } finally {
      const grant = ['role', 'grant-permission', 'locker', 'readwrite', '/mine/', '--prefix'];
      await etcd.ctl(...root, ...grant);
    }
    await session.close();
    client.close();
  });

  test('a first endpoint that is mute does not keep a user out', async () => {
    await using proxy = await startProxy(etcd.endpoints[0] ?? '');
    proxy.swallow();
    const endpoints = [proxy.endpoint, ...etcd.endpoints];
    const client = await connect({ endpoints, user: 'alice:secret' });
    client.close();
    proxy.pass();
  });

  test('a wrong password, and none at all, are refused at once', async () => {
    const { endpoints } = etcd;
    const start = performance.now();
    await expect(connect({ endpoints, user: 'alice:wrong' })).rejects.toThrow(
      new PermissionDenied('etcdserver: authentication failed, invalid user ID or password'),
    );
    await expect(connect({ endpoints, user: 'alice' })).rejects.toThrow(RangeError);
    expect(performance.now() - start).toBeLessThan(3000);
  });

  test('a session and its lock outlive the token, and the wait goes on after it ran out', async () => {
    const [holding, waiting] = [await alice(), await alice()];
    const a = await Session.create(holding, { ttl: 5 });
    const b = await Session.create(waiting, { ttl: 5 });
    const [holder, waiter] = [new Mutex(a, '/mine/long'), new Mutex(b, '/mine/long')];
    await holder.lock();
    const granted = waiter.lock();
    // Five lives of a token, and three of a lease.
    const end = performance.now() + 15_000;
    await vi.waitFor(() => expect(performance.now()).toBeGreaterThan(end), { timeout: 20_000 });
    expect([a.expired, b.expired]).toEqual([false, false]);
    holder.assertHeld();
    expect(await holder.unlock()).toBe(true);
    await granted;
    expect(waiter.token).toBeGreaterThan(0n);
    await a.close();
    await b.close();
    holding.close();
    waiting.close();
  });

  test('`client` takes --user, --password and ETCDCTL_USER, and says what is forbidden', async () => {
    const args = ['--endpoints', etcd.endpoints.join(','), '--lock', '/mine/client'];
    await using whole = startClient(1, [...args, '--user', 'alice:secret']);
    await whole.line('acquired lock');
    whole.signal('SIGTERM');
    expect((await whole.exited).code).toBe(143);
    await using parts = startClient(1, [...args, '--password', 'secret'], {
      env: { ETCDCTL_USER: 'alice' },
    });
    await parts.line('acquired lock');
    await using wrong = startClient(2, [...args, '--user', 'alice:wrong']);
    await wrong.line('failed to reach etcd: etcdserver: authentication failed');
    await using other = startClient(2, [...args.slice(0, 2), '--user', 'alice:secret']);
    await other.line('failed to acquire lock: etcdserver: permission denied');
    expect((await other.exited).code).toBe(1);
  });
});

/** An authority, and a certificate of it for a server and client at 127.0.0.1. */
async function makeCertificates(folder: string): Promise<TlsFiles> {
  const authority = await generate([{ name: 'commonName', value: 'authority' }], {
    keyType: 'ec',
    algorithm: 'sha256',
    extensions: [
      { name: 'basicConstraints', cA: true, critical: true },
      { name: 'keyUsage', keyCertSign: true, digitalSignature: true },
    ],
  });
  const member = await generate([{ name: 'commonName', value: 'member' }], {
    keyType: 'ec',
    algorithm: 'sha256',
    ca: { key: authority.private, cert: authority.cert },
    extensions: [
      { name: 'basicConstraints', cA: false },
      { name: 'extKeyUsage', serverAuth: true, clientAuth: true },
      { name: 'subjectAltName', altNames: [{ type: 7, ip: '127.0.0.1' }] },
    ],
  });
  const files = { ca: join(folder, 'ca'), cert: join(folder, 'cert'), key: join(folder, 'key') };
  await writeFile(files.ca, authority.cert);
  await writeFile(files.cert, member.cert);
  await writeFile(files.key, member.private);
  return files;
}
