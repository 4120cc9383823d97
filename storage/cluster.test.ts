// Three storages that serve the same data from an etcd of three members, one of which is killed under
// load: what was accepted is there, and no token goes back, whichever storage is asked.

import { expect, onTestFinished, test } from 'vitest';
import { startEtcd } from '../scripts/lib/etcd.js';
import { startStorage } from '../scripts/lib/program.js';
import { decodeResponse, encodeRequest, type Response } from './protocol.js';

test('three storages on three members lose nothing when a member is killed', async () => {
  await using etcd = await startEtcd({ members: 3 });
  const urls: string[] = [];
  for (let i = 0; i < 3; i++) {
    // Each asks another member first.
    const endpoints = [...etcd.endpoints.slice(i), ...etcd.endpoints.slice(0, i)].join(',');
    const args = ['--store', 'etcd', '--fence', 'monotonic', '--endpoints', endpoints];
    const storage = await startStorage(args);
    onTestFinished(() => storage[Symbol.asyncDispose]());
    urls.push(storage.url);
  }
  const KEYS = ['a', 'b', 'c'];
  /** The highest token that was accepted for each key. */
  const accepted = new Map(KEYS.map((key) => [key, 0n]));
  const values = new Set<string>();
  const outcomes = { accepted: 0, refused: 0, unknown: 0 };
  let token = 0n;
  let done = false;

  const client = async (id: number) => {
    for (let i = 0; !done; i++) {
      const key = KEYS[i % 3] ?? '';
      const url = urls[(id + i) % 3] ?? '';
      const version = ++token;
      const before = accepted.get(key) ?? 0n;
      const val = `${id} ${i} under ${version}`;
      const answer = await ask(url, { op: 'write', key, val, version });
      if (answer?.err === '') {
        // Accepted although a higher one had been before it was sent: a token that went back.
        expect(version >= before).toBe(true);
        outcomes.accepted++;
        values.add(val);
        if (version > (accepted.get(key) ?? 0n)) accepted.set(key, version);
      } else if (answer?.err.startsWith('stale fencing token')) outcomes.refused++;
      else outcomes.unknown++;
      const read = await ask(url, { op: 'read', key, val: '', version: 0n });
      if (read && read.err === '') expect(read.version >= before).toBe(true);
    }
  };
  const clients = Array.from({ length: 6 }, (_, id) => client(id));
  const reach = async (count: number) => {
    while (outcomes.accepted < count) await Promise.race([...clients, tick()]);
  };
  await reach(50);
  await etcd.members[1]?.kill();
  await reach(outcomes.accepted + 200);
  await etcd.members[1]?.restart();
  await reach(outcomes.accepted + 50);
  done = true;
  await Promise.all(clients);

  for (const url of urls) {
    for (const key of KEYS) {
      const { version, val } = (await ask(url, { op: 'read', key, val: '', version: 0n })) ?? {};
      expect(version).toBeGreaterThanOrEqual(accepted.get(key) ?? 0n);
      expect(val?.endsWith(` under ${version}`)).toBe(true);
      // Or of a write whose answer was lost.
      if (outcomes.unknown === 0) expect(values).toContain(val);
      const stale = { op: 'write', key, val: 'stale', version: (version ?? 0n) - 1n };
      expect((await ask(url, stale))?.err).toMatch(/^stale fencing token/);
    }
  }
  expect(outcomes.refused).toBeGreaterThan(0);
});

/** The answer; undefined when it says nothing about the fence. */
async function ask(
  url: string,
  request: Parameters<typeof encodeRequest>[0],
): Promise<Response | undefined> {
  const response = await fetch(url, { method: 'POST', body: encodeRequest(request) });
  const answer = decodeResponse(await response.text());
  return response.status === 200 ? answer : undefined;
}

function tick(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
