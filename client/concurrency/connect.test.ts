// Reaching etcd, and going on when one of several endpoints is dead, frozen or mute.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, inject, test } from 'vitest';
import { startEtcd } from '../../scripts/lib/etcd.js';
import { Peer, startPeer } from '../../scripts/lib/peer.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { connect } from './connect.js';
import { Unreachable } from './errors.js';
import { Mutex } from './mutex.js';
import type { Session } from './session.js';
import { delay } from './timing.js';

const [endpoint = ''] = inject('etcd');

/** An endpoint where nobody listens. */
async function deadEndpoint(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

/** `others` with `one` put in at a position. */
function insert(one: string, position: number, others: readonly string[]): string[] {
  return others.toSpliced(position, 0, one);
}

const positions = [0, 1, 2];

describe.concurrent('connecting', () => {
  test('the scheme of an endpoint may be left out', async () => {
    await using peer = await Peer.connect([endpoint.replace('http://', '')]);
    expect(await peer.revision()).toBeGreaterThan(0n);
  });

  test.each(['', 'ftp://127.0.0.1', 'http://127.0.0.1:99999', 'http://127.0.0.1:1/path', '%'])(
    'an endpoint that cannot be one is a RangeError: %j',
    async (wrong) => {
      await expect(connect({ endpoints: [endpoint, wrong] })).rejects.toThrow(RangeError);
    },
  );

  test('where nobody listens it fails in time, and says where it tried', async () => {
    const dead = await deadEndpoint();
    const start = performance.now();
    const failing = connect({ endpoints: [dead], timeout: 3000 });
    await expect(failing).rejects.toBeInstanceOf(Unreachable);
    await expect(failing).rejects.toThrow(new RegExp(`3 s from ${dead}.*ECONNREFUSED`));
    expect(performance.now() - start).toBeLessThan(4500);
  });

  test('where nobody answers it fails in time', async () => {
    await using proxy = await startProxy(endpoint);
    proxy.swallow();
    const start = performance.now();
    const failing = connect({ endpoints: [proxy.endpoint], timeout: 500 });
    await expect(failing).rejects.toMatchObject({ code: 'UNREACHABLE' });
    expect(performance.now() - start).toBeLessThan(1500);
  });

  test('a user is none where etcd asks nobody who they are, as in Go', async () => {
    await using peer = await Peer.connect([endpoint], { user: 'alice:secret' });
    expect(await peer.revision()).toBeGreaterThan(0n);
  });

  test('the signal ends it with its reason', async () => {
    await using proxy = await startProxy(endpoint);
    proxy.swallow();
    const controller = new AbortController();
    const connecting = connect({ endpoints: [proxy.endpoint], signal: controller.signal });
    await proxy.traffic('toServer');
    controller.abort('enough');
    await expect(connecting).rejects.toBe('enough');
  });

  test('a process that could not connect can end', async () => {
    await using proxy = await startProxy(endpoint);
    proxy.swallow();
    await using program = startPeer(
      [proxy.endpoint, await deadEndpoint()],
      `await lib.connect({ endpoints, timeout: 300 }).catch((error) => console.log(error.code));`,
    );
    await program.line('UNREACHABLE');
    const failed = performance.now();
    expect(await program.exited).toEqual({ code: 0, signal: null });
    // etcd3 waits a second for a connection that is half made before it closes it.
    expect(performance.now() - failed).toBeLessThan(2000);
  });

  test('one living endpoint of three is found within 5 s, in every position, every time', async () => {
    const dead = [await deadEndpoint(), await deadEndpoint()];
    for (let start = 0; start < 51; start++) {
      await using peer = await Peer.connect(insert(endpoint, start % 3, dead));
      await peer.session();
    }
  });

  test.each(positions)(
    'one living endpoint is found within 5 s among two that are mute, at %i',
    async (position) => {
      await using proxy = await startProxy(endpoint);
      await using another = await startProxy(endpoint);
      proxy.swallow();
      another.swallow();
      const mute = [proxy.endpoint, another.endpoint];
      await using peer = await Peer.connect(insert(endpoint, position, mute));
      await peer.session();
    },
  );
});

async function renewedTwice(session: Session): Promise<void> {
  for (let renewals = 0; renewals < 2; renewals++) {
    const { deadline } = session;
    while (session.deadline === deadline) await delay(100, session.signal);
  }
}

/**
 * For four times its TTL a session must keep its lease, and its locks be granted. Others are at work
 * on the same connection, with a long TTL and so with more patience for a mute member: they must
 * not hold up renewals.
 */
async function livesAndLocks(peer: Peer): Promise<void> {
  const brief = await peer.session({ ttl: 3 });
  const end = performance.now() + 4 * brief.ttl * 1000;
  await Promise.all(
    [brief, await peer.session()].map(async (session) => {
      const mutex = new Mutex(session, `/connect-test/${randomUUID()}`);
      while (performance.now() < end) {
        await mutex.lock();
        await mutex.unlock();
        await delay(300, brief.signal);
      }
    }),
  );
  expect(brief.expired).toBe(false);
}

describe.concurrent('a session lives on and its locks are granted, in every position,', () => {
  test('while one endpoint of three is dead', async () => {
    await using proxy = await startProxy(endpoint);
    const dead = await deadEndpoint();
    await Promise.all(
      positions.map(async (position) => {
        await using peer = await Peer.connect(insert(dead, position, [endpoint, proxy.endpoint]));
        await livesAndLocks(peer);
      }),
    );
  });

  test('while one endpoint of three is mute', async () => {
    await using proxy = await startProxy(endpoint);
    await using mute = await startProxy(endpoint);
    await Promise.all(
      positions.map(async (position) => {
        const endpoints = insert(mute.endpoint, position, [endpoint, proxy.endpoint]);
        await using peer = await Peer.connect(endpoints);
        mute.swallow();
        await livesAndLocks(peer);
      }),
    );
  });

  test('while two of three are mute, with a TTL that is longer than the patience for them', async () => {
    await using mute = await startProxy(endpoint);
    await using another = await startProxy(endpoint);
    await Promise.all(
      positions.map(async (position) => {
        const endpoints = insert(endpoint, position, [mute.endpoint, another.endpoint]);
        await using peer = await Peer.connect(endpoints);
        // Time for three attempts in vain: a busy machine may make a mute one seem worth another.
        const sessions = await Promise.all([1, 2, 3].map(() => peer.session({ ttl: 20 })));
        mute.swallow();
        another.swallow();
        // Each has to be renewed, by whichever member it meets first.
        await Promise.all(sessions.map(renewedTwice));
      }),
    );
  });

  test('while one member of three is frozen', async () => {
    await using cluster = await startEtcd({ members: 3 });
    const [first, ...others] = await Promise.all(
      cluster.members.map(async (member) => {
        await using peer = await Peer.connect([member.endpoint]);
        const { header, leader } = await peer.etcd.maintenance.status();
        return { member, follows: header.member_id !== leader };
      }),
    );
    // A frozen leader is another story: for as long as an election takes nobody renews.
    const frozen = first?.follows ? first.member : others[0]?.member;
    if (!frozen) throw new Error('expected three members');
    const rest = cluster.endpoints.filter((one) => one !== frozen.endpoint);
    await Promise.all(
      positions.map(async (position) => {
        await using peer = await Peer.connect(insert(frozen.endpoint, position, rest));
        frozen.pause();
        await livesAndLocks(peer);
      }),
    );
    frozen.resume();
  });
});
