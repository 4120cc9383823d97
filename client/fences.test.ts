// The walk-through with the rules that work and the stores that last, by the programs as users run
// them: what upstream's rule spoils, these do not.

import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generate } from 'selfsigned';
import { describe, expect, inject, type TestContext, test } from 'vitest';
import { runEtcdctl } from '../scripts/lib/etcd.js';
import { type Program, startClient, startStorage } from '../scripts/lib/program.js';

const ETCD = ['--endpoints', inject('etcd').join(',')];

type AtEnd = TestContext['onTestFinished'];

const stores = {
  memory: async () => [],
  lmdb: async (onTestFinished: AtEnd) => [
    '--store',
    'lmdb',
    '--data',
    join(await temporaryFolder(onTestFinished), 'data'),
  ],
  etcd: async () => ['--store', 'etcd', '--prefix', `/fences-test/${randomUUID()}/`],
};
const cases = (['monotonic', 'holder'] as const).flatMap((fence) =>
  Object.entries(stores).map(([store, args]) => ({ fence, store, args })),
);

describe.concurrent.each(cases)('--fence $fence --store $store', ({ fence, args }) => {
  test('refuses a stale client 1, and lets client 2 write any number of times', async ({
    onTestFinished,
  }) => {
    const { start } = await stage(onTestFinished, [
      '--fence',
      fence,
      ...(await args(onTestFinished)),
    ]);
    const one = start(1);
    const old = token(await one.line('acquired lock'));
    await revoke(one);
    const tokens = [old];
    for (let i = 0; i < 3; i++) {
      const two = start(2);
      tokens.push(token(await two.line('acquired lock')));
      await two.line(`successfully write a key to storage using token ${tokens.at(-1)}`);
      expect((await two.exited).code).toBe(0);
    }
    expect(tokens).toEqual([...tokens].sort((a, b) => Number(a - b)));
    one.write('x');
    const refused = await one.line('expected fail to write to storage with old token: error: ');
    expect(refused).toMatch(
      fence === 'monotonic'
        ? `stale fencing token: given ${old} is lower than ${tokens.at(-1)} (if etcd began anew`
        : /lock '.*' not found or expired$/,
    );
    expect((await one.exited).code).toBe(0);
  });
});

test.concurrent('with monotonic the old holder that writes first does not shut the successor out', async ({
  onTestFinished,
}) => {
  const { start } = await stage(onTestFinished, ['--fence', 'monotonic']);
  const one = start(1);
  await revoke(one);
  const other = start(1);
  await other.line('hit any key');
  one.write('x');
  await one.line('successfully write a key to storage using token');
  other.write('x');
  await other.line('successfully write a key to storage using token');
});

test.concurrent('with holder the old holder is refused even before its successor’s first write', async ({
  onTestFinished,
}) => {
  const { start } = await stage(onTestFinished, ['--fence', 'holder']);
  const one = start(1);
  const old = token(await one.line('acquired lock'));
  await revoke(one);
  const other = start(1);
  await other.line('hit any key');
  const successor = token(await other.line('acquired lock'));
  one.write('x');
  const refused = await one.line('expected fail to write to storage');
  expect(refused).toContain(`stale fencing token: given ${old} is lower than ${successor}`);
  other.write('x');
  await other.line(`successfully write a key to storage using token ${successor}`);
});

test.concurrent('with holder a lease ID is no token, and the refusal says so', async ({
  onTestFinished,
}) => {
  const { start } = await stage(onTestFinished, ['--fence', 'holder']);
  const two = start(2, ['--token', 'lease']);
  await two.line('unexpected fail to write to storage: error: invalid fencing token: given');
  expect((await two.exited).code).toBe(1);
});

test.concurrent('storage behind TLS and a token takes the client that has both, and no other', async ({
  onTestFinished,
}) => {
  const folder = await temporaryFolder(onTestFinished);
  const [cert, key, right, wrong] = ['cert', 'key', 'right', 'wrong'].map((name) =>
    join(folder, name),
  ) as [string, string, string, string];
  const made = await generate([{ name: 'commonName', value: 'localhost' }], {
    keyType: 'ec',
    extensions: [{ name: 'subjectAltName', altNames: [{ type: 2, value: 'localhost' }] }],
  });
  await Promise.all([
    writeFile(cert, made.cert),
    writeFile(key, made.private),
    writeFile(right, 's3cret\n'),
    writeFile(wrong, 'guess'),
  ]);
  const { start, storage } = await stage(onTestFinished, [
    '--tls-cert',
    cert,
    '--tls-key',
    key,
    '--auth-token-file',
    right,
  ]);
  expect(storage.url).toMatch(/^https:/);
  const trusting = ['--storage-cacert', cert];
  await start(2, []).line('failed to send a request to storage: self-signed certificate');
  await start(2, trusting).line(
    'storage answered with status 401: expected the token of this storage',
  );
  await start(2, [...trusting, '--auth-token-file', wrong]).line(
    'storage answered with status 401',
  );
  const two = start(2, [...trusting, '--auth-token-file', right]);
  await two.line('successfully write a key to storage using token');
  expect((await two.exited).code).toBe(0);
});

/** A storage, and clients of a lock of its own that write to it with the revision as their token. */
async function stage(onTestFinished: AtEnd, args: string[]) {
  const lock = `/fences-test/${randomUUID()}`;
  const asking = args.includes('holder') ? [...ETCD, '--lock', lock] : [];
  const keeping = args.includes('etcd') && asking.length === 0 ? ETCD : [];
  const storage = await startStorage([...args, ...asking, ...keeping]);
  onTestFinished(() => storage[Symbol.asyncDispose]());
  return {
    storage,
    start: (mode: 1 | 2, more: string[] = []) => {
      const place = ['--storage', storage.url, '--lock', lock, '--token', 'revision'];
      const client = startClient(mode, [...ETCD, ...place, ...more]);
      onTestFinished(() => client[Symbol.asyncDispose]());
      return client;
    },
  };
}

/** Revokes the lease that a client 1 names when it waits for a key. */
async function revoke(one: Program): Promise<void> {
  const lease = / lease revoke ([\da-f]+)'/.exec(await one.line('hit any key'))?.[1] ?? '';
  await runEtcdctl([...ETCD, 'lease', 'revoke', lease]);
}

function token(line: string): bigint {
  return BigInt(/acquired lock, token: (\d+)/.exec(line)?.[1] ?? -1);
}

async function temporaryFolder(onTestFinished: AtEnd): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'fences-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
