// What the network and etcd may do to a lock: answers that are lost, requests that arrive late,
// compactions, restarts. Whatever happens, there never are two owners, a token is never wrong, and
// after a rejection no key of ours stays. What etcd itself has tells, seen over a clean connection.

import { setMaxListeners } from 'node:events';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { GRPCDeadlineExceededError } from 'etcd3';
import { describe, expect, inject, test, vi } from 'vitest';
import { type Etcd, startEtcd } from '../../scripts/lib/etcd.js';
import { Peer } from '../../scripts/lib/peer.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { LockReleased } from './errors.js';
import { Mutex } from './mutex.js';

const endpoints = inject('etcd');
const [endpoint = ''] = endpoints;

let names = 0;
function newName(): string {
  return `/faults-test/${process.pid}/${++names}`;
}

/** What stays closed until it is opened, and says when somebody has arrived at it. */
class Gate {
  open = () => {};
  arrive = () => {};
  readonly opened = new Promise<void>((resolve) => {
    this.open = resolve;
  });
  readonly arrived = new Promise<void>((resolve) => {
    this.arrive = resolve;
  });
}

/** A clean connection, and another one through a proxy. */
async function connectBoth() {
  const proxy = await startProxy(endpoint);
  const peer = await Peer.connect(endpoints);
  const through = await Peer.connect([proxy.endpoint]);
  // On a connection that is not made yet nothing would be sent while it is mute.
  await through.revision();
  return {
    proxy,
    peer,
    through,
    async [Symbol.asyncDispose]() {
      await through[Symbol.asyncDispose]();
      await peer[Symbol.asyncDispose]();
      await proxy[Symbol.asyncDispose]();
    },
  };
}

describe.concurrent('when the answer is lost', () => {
  test('to the request to join, the lock is held once, with the token of its key', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const mutex = await through.mutex(newName());
    const cut = proxy.cutAfterRequest();
    await mutex.lock();
    await cut;
    expect(await peer.queue(mutex.name)).toMatchObject([
      { key: mutex.key, revision: mutex.token, lease: mutex.session.leaseId },
    ]);
    await mutex.unlock();
    expect(await peer.queue(mutex.name)).toEqual([]);
  });

  test('to the request to join, and it was refused, tryLock leaves no key', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const name = newName();
    const holder = await peer.mutex(name);
    await holder.lock();
    const mutex = await through.mutex(name);
    const cut = proxy.cutAfterRequest();
    await expect(mutex.tryLock()).rejects.toMatchObject({ code: 'LOCKED' });
    await cut;
    expect(await peer.queue(name)).toMatchObject([{ key: holder.key }]);
  });

  test('to the request to join, and the caller gives up, no key stays', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const mutex = await through.mutex(newName());
    const controller = new AbortController();
    const cut = proxy.cutAfterRequest().then(() => controller.abort('enough'));
    await expect(mutex.lock({ signal: controller.signal })).rejects.toBe('enough');
    await cut;
    await peer.untilQueued(mutex.name, 0);
    expect(mutex.token).toBe(0n);
  });

  test('to the deletion, the lock is free, and a second unlock does not free the next one', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const old = await through.mutex(newName());
    await old.lock();
    const cut = proxy.cutAfterRequest();
    await old.unlock();
    await cut;
    expect(await peer.queue(old.name)).toEqual([]);
    const young = new Mutex(old.session, old.name);
    await young.lock();
    await expect(old.unlock()).rejects.toBeInstanceOf(LockReleased);
    expect(await peer.queue(old.name)).toMatchObject([{ revision: young.token }]);
  });

  test('to a deletion, and the next begins in the moment of its answer: a lock waits for that one too', async () => {
    await using peer = await Peer.connect(endpoints);
    const { kv } = peer.etcd;
    const [txn, range] = [kv.txn.bind(kv), kv.range.bind(kv)];
    const holders: Mutex[] = [];
    // It hangs on a microtask, and on how many there are in between: all are tried.
    for (let ticks = 0; ticks < 24; ticks++) holders.push(await peer.mutex(newName()));
    await Promise.all(holders.map((holder) => holder.lock()));

    // In each session one gives up, without an answer: is there something of it to be deleted?
    const lost = new Gate();
    vi.spyOn(kv, 'txn').mockImplementation((request) => lost.opened.then(() => txn(request)));
    const looks = new Map(holders.map(({ key }) => [key, new Gate()]));
    vi.spyOn(kv, 'range').mockImplementation(async (request) => {
      const answer = await range(request);
      const look = looks.get(String(request.key));
      look?.arrive();
      await look?.opened;
      return answer;
    });
    const lock = ({ session, name }: Mutex) => new Mutex(session, name).lock({ timeout: 1 });
    for (const { status } of await Promise.allSettled(holders.map(lock))) {
      expect(status).toBe('rejected');
    }
    lost.open();

    for (const [ticks, holder] of holders.entries()) {
      const { session, name, key } = holder;
      const look = looks.get(key);
      await look?.arrived;
      // The next one waits for the answer to that, and in the moment of it the holder leaves.
      const deletion = new Gate();
      const joins: Promise<unknown>[] = [];
      vi.spyOn(kv, 'txn').mockImplementation((request) => {
        if (request.success?.[0]?.request_delete_range) {
          return deletion.opened.then(() => txn(request));
        }
        joins.push(txn(request));
        return joins.at(-1) as ReturnType<typeof txn>;
      });
      const next = new Mutex(session, name);
      const locking = next.lock();
      look?.open();
      for (let i = 0; i < ticks; i++) await Promise.resolve();
      const leaving = holder.unlock();
      await new Promise(setImmediate);
      await Promise.all(joins);
      deletion.open();
      await Promise.all([locking, leaving]);
      expect(await peer.queue(name)).toMatchObject([{ revision: next.token }]);
    }
  });

  test('to the deletion for a while, a new lock of the session is not freed by its repetition', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const old = await through.mutex(newName());
    await old.lock();
    proxy.dropToClient();
    await expect(old.unlock({ timeout: 100 })).rejects.toMatchObject({
      code: 'UNREACHABLE',
    });
    await peer.untilQueued(old.name, 0);
    const young = new Mutex(old.session, old.name);
    const locking = young.lock();
    proxy.pass();
    await locking;
    await expect(old.unlock()).rejects.toBeInstanceOf(LockReleased);
    await sleep(300);
    expect(await peer.queue(old.name)).toMatchObject([{ revision: young.token }]);
  });

  test('to the grant of a lease, the session gets another one, and its locks are of that one', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const cut = proxy.cutAfterRequest();
    const mutex = await through.mutex(newName());
    await cut;
    expect(await peer.leaseLives(mutex.session)).toBe(true);
    await mutex.lock();
    expect(await peer.queue(mutex.name)).toMatchObject([{ lease: mutex.session.leaseId }]);
  });

  test('to the renewal by which a lease is adopted, it is adopted nevertheless', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const { leaseId } = await peer.session();
    const cut = proxy.cutAfterRequest();
    const heir = await through.session({ leaseId });
    await cut;
    expect(heir.leaseId).toBe(leaseId);
  });

  test('to the revocation, closing still ends well', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const session = await through.session();
    const cut = proxy.cutAfterRequest();
    await session.close();
    await cut;
    expect(await peer.leaseLives(session)).toBe(false);
  });

  test('to what a waiter asks, it goes on waiting and is granted in its turn', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const name = newName();
    const holder = await peer.mutex(name);
    await holder.lock();
    const mutex = await through.mutex(name);
    const waiting = mutex.lock();
    await peer.untilQueued(name, 2);
    const cut = proxy.cutAfterRequest();
    proxy.cut();
    await cut;
    await holder.unlock();
    await waiting;
    expect(await peer.queue(name)).toMatchObject([{ key: mutex.key, revision: mutex.token }]);
  });
});

describe.concurrent('when requests arrive late', () => {
  test('a lock that was given up leaves no ghost in the queue, also when it joins only now', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const session = await through.session({ ttl: 20 });
    const mutexes = Array.from({ length: 20 }, () => new Mutex(session, newName()));
    let ghosts = 0;
    const prefix = mutexes[0]?.name.replace(/[0-9]+$/, '') ?? '';
    await using watcher = Object.assign(await peer.etcd.watch().prefix(prefix).create(), {
      async [Symbol.asyncDispose]() {
        await watcher.cancel();
      },
    });
    watcher.on('put', ({ lease }) => {
      if (BigInt(lease) === session.leaseId) ghosts++;
    });
    proxy.dropToServer();
    const controller = new AbortController();
    setMaxListeners(0, controller.signal);
    const waits = mutexes.map((mutex) => mutex.lock({ signal: controller.signal }));
    for (const wait of waits) wait.catch(() => {});
    await proxy.traffic('toServer', 2000);
    controller.abort('enough');
    const given = performance.now();
    for (const wait of waits) await expect(wait).rejects.toBe('enough');
    expect(performance.now() - given).toBeLessThan(2000);
    for (const { name } of mutexes) expect(await peer.queue(name)).toEqual([]);
    proxy.pass();
    // The test is one only if some of them do join.
    await vi.waitFor(() => expect(ghosts).toBeGreaterThan(0), 20_000);
    for (const { name } of mutexes) {
      const next = await peer.mutex(name);
      await next.lock({ timeout: 5000 });
      expect(await peer.queue(name)).toMatchObject([{ key: next.key }]);
    }
    expect(session.expired).toBe(false);
  });

  test('and the session goes on to use the lock, the late one does no harm', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const session = await through.session({ ttl: 6 });
    const mutex = new Mutex(session, newName());
    proxy.dropToServer();
    await expect(mutex.lock({ timeout: 600 })).rejects.toMatchObject({
      code: 'UNREACHABLE',
    });
    const again = new Mutex(session, mutex.name);
    const locking = again.lock();
    proxy.pass();
    await locking;
    await sleep(300);
    expect(await peer.queue(mutex.name)).toMatchObject([{ revision: again.token }]);
    await again.unlock();
    await peer.untilQueued(mutex.name, 0);
  });

  test('and all traces had been looked for before, it is found and deleted', async () => {
    await using peer = await Peer.connect(endpoints);
    const mutex = await peer.mutex(newName(), { ttl: 3 });
    const { kv } = peer.etcd;
    const txn = kv.txn.bind(kv);
    const controller = new AbortController();
    let arrive = async () => {};
    vi.spyOn(kv, 'txn').mockImplementationOnce(async (...call) => {
      arrive = async () => void (await txn(call[0]));
      controller.abort('enough');
      throw new GRPCDeadlineExceededError('no answer');
    });
    await expect(mutex.lock({ signal: controller.signal })).rejects.toBe('enough');
    expect(await peer.queue(mutex.name)).toEqual([]);
    await arrive();
    expect(await peer.queue(mutex.name)).toMatchObject([{ key: mutex.key }]);
    await peer.untilQueued(mutex.name, 0);
    // Nor is it in the way of the next lock of this session, however it arrives.
    await arrive();
    await mutex.lock();
    expect(await peer.queue(mutex.name)).toMatchObject([{ revision: mutex.token }]);
    await mutex.unlock();
    await peer.untilQueued(mutex.name, 0);
  });

  test('a deletion does not hit the next key of the same session', async () => {
    await using peer = await Peer.connect(endpoints);
    const mutex = await peer.mutex(newName());
    await mutex.lock();
    const { kv } = peer.etcd;
    const txn = kv.txn.bind(kv);
    let arrive = async () => {};
    vi.spyOn(kv, 'txn').mockImplementationOnce(async (...call) => {
      arrive = async () => void (await txn(call[0]));
      throw new GRPCDeadlineExceededError('no answer');
    });
    await mutex.unlock();
    await mutex.lock();
    await arrive();
    expect(await peer.queue(mutex.name)).toMatchObject([{ revision: mutex.token }]);
  });

  test('an unlock that was given up happens nevertheless', async () => {
    await using both = await connectBoth();
    const { proxy, peer, through } = both;
    const mutex = await through.mutex(newName());
    await mutex.lock();
    proxy.swallow();
    const signal = AbortSignal.timeout(100);
    await expect(mutex.unlock({ signal })).rejects.toMatchObject({ name: 'TimeoutError' });
    expect(mutex.token).toBe(0n);
    expect(await peer.queue(mutex.name)).toHaveLength(1);
    proxy.pass();
    await peer.untilQueued(mutex.name, 0);
  });
});

describe.concurrent('during a wait', () => {
  /** A holder, and a waiter whose watch is through the proxy. */
  async function holdAndWait({ peer, through }: Record<'peer' | 'through', Peer>) {
    const name = newName();
    const holder = await peer.mutex(name);
    await holder.lock();
    const waiter = await through.mutex(name);
    const waiting = waiter.lock();
    waiting.catch(() => {}); // It may reject before a test has come to look.
    await peer.untilQueued(name, 2);
    await sleep(200); // It is no longer about to look, but waits to be told.
    return { name, holder, waiter, waiting };
  }

  test.each([0, 1, 5])('a reconnect is not the caller’s problem (%i times)', async (times) => {
    await using both = await connectBoth();
    const { name, holder, waiter, waiting } = await holdAndWait(both);
    for (let i = 0; i < times; i++) {
      const back = both.proxy.traffic('toClient', 100);
      both.proxy.cut();
      await back;
    }
    await holder.unlock();
    await waiting;
    expect(await both.peer.queue(name)).toMatchObject([
      { key: waiter.key, revision: waiter.token },
    ]);
  });

  test('a release that is missed while the connection is away is noticed after it', async () => {
    await using both = await connectBoth();
    const { holder, waiting } = await holdAndWait(both);
    both.proxy.refuse();
    await holder.unlock();
    both.proxy.pass();
    await waiting;
  });

  test('a release that is missed while the connection is mute is noticed soon after it', async () => {
    await using both = await connectBoth();
    const { holder, waiting } = await holdAndWait(both);
    both.proxy.swallow();
    await holder.unlock();
    // Held back, not lost: cut, so that the event never comes.
    both.proxy.cut();
    both.proxy.pass();
    await waiting;
  });

  test('a watch that is mute for itself is given up, and looked after by reading', async () => {
    await using both = await connectBoth();
    await using second = await startProxy(endpoint);
    await using through = await Peer.connect([both.proxy.endpoint, second.endpoint]);
    const { holder, waiting } = await holdAndWait({ peer: both.peer, through });
    // One of the two has the watch.
    both.proxy.swallow();
    await holder.unlock();
    const released = performance.now();
    await waiting;
    // Two questions of 2 s, and a call that goes to the mute one first.
    expect(performance.now() - released).toBeLessThan(15_000);
  });

  test('a compaction with a reconnect is not the caller’s problem, and leaves no key behind', async () => {
    await using etcd = await startEtcd();
    await using proxy = await startProxy(etcd.endpoints[0] ?? '');
    await using peer = await Peer.connect(etcd.endpoints);
    await using through = await Peer.connect([proxy.endpoint]);
    const { name, holder, waiter, waiting } = await holdAndWait({ peer, through });
    const leaving = await through.mutex(name);
    const controller = new AbortController();
    const left = leaving.lock({ signal: controller.signal });
    await peer.untilQueued(name, 3);
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < 10; i++) await peer.etcd.put('noise').value(i);
      await etcd.ctl('compaction', String(await peer.revision()), '--physical');
      const back = proxy.traffic('toClient', 100);
      proxy.cut();
      await back;
    }
    controller.abort('enough');
    await expect(left).rejects.toBe('enough');
    expect(await peer.queue(name)).toHaveLength(2);
    await holder.unlock();
    await waiting;
    expect(await peer.queue(name)).toMatchObject([{ key: waiter.key, revision: waiter.token }]);
  });

  test.each(['SIGTERM', 'SIGKILL'] as const)(
    'a restart of etcd by %s is not the caller’s problem',
    async (how) => {
      await using etcd = await startEtcd();
      await using peer = await Peer.connect(etcd.endpoints);
      const { name, holder, waiter, waiting } = await holdAndWait({ peer, through: peer });
      const [member] = etcd.members;
      // By SIGTERM it ends the streams in good order.
      process.kill(member?.pid ?? 0, how);
      await member?.restart();
      await holder.unlock();
      await waiting;
      expect(await peer.queue(name)).toMatchObject([{ key: waiter.key, revision: waiter.token }]);
    },
  );

  test('an etcd that comes back empty rejects it', async () => {
    const dataDir = join(tmpdir(), `faults-test-${process.pid}`);
    await using etcd = await startEtcd({ dataDir });
    await using peer = await Peer.connect(etcd.endpoints);
    const { name, holder, waiting } = await holdAndWait({ peer, through: peer });
    const [member] = etcd.members;
    await member?.kill();
    await rm(dataDir, { recursive: true });
    await member?.restart();
    await expect(waiting).rejects.toMatchObject({ code: 'SESSION_EXPIRED', reason: 'revoked' });
    expect(await peer.queue(name)).toEqual([]);
    await holder.unlock();
    await expect(holder.lock()).rejects.toMatchObject({ code: 'SESSION_EXPIRED' });
    await etcd.stop();
    await rm(dataDir, { recursive: true });
  });

  test('the leader of three members may die', async () => {
    await using etcd = await startEtcd({ members: 3 });
    await using peer = await Peer.connect(etcd.endpoints);
    const { name, holder, waiter, waiting } = await holdAndWait({ peer, through: peer });
    await (await leaderOf(etcd)).kill();
    await holder.unlock();
    await waiting;
    holder.session.signal.throwIfAborted();
    waiter.assertHeld();
    expect(await peer.queue(name)).toMatchObject([{ key: waiter.key, revision: waiter.token }]);
  });
});

describe.concurrent('when etcd has stopped', () => {
  test.each(['joining', 'waiting'] as const)(
    'a time limit ends a lock that is %s within a second more, and no ghost takes it later',
    async (stage) => {
      await using etcd = await startEtcd();
      await using peer = await Peer.connect(etcd.endpoints);
      const name = newName();
      const [member] = etcd.members;
      const [holder, mutex] = [await peer.mutex(name), await peer.mutex(name)];
      if (stage === 'waiting') await holder.lock();
      const start = performance.now();
      const begin = () => mutex.lock({ timeout: 2000 });
      let locking: Promise<void>;
      if (stage === 'waiting') {
        locking = begin();
        await peer.untilQueued(name, 2);
        member?.pause();
      } else {
        member?.pause();
        locking = begin();
      }
      // One that did not join was waiting for etcd. One that did was waiting for another holder, or
      // for the answer to a look at the queue that was under way when etcd stopped.
      const codes = stage === 'waiting' ? /^(TIMEOUT|UNREACHABLE)$/ : /^UNREACHABLE$/;
      const code = expect.stringMatching(codes);
      await expect(locking).rejects.toMatchObject({ code });
      expect(performance.now() - start).toBeLessThan(3000);
      member?.resume();
      if (stage === 'waiting') await holder.unlock();
      const next = await peer.mutex(name);
      await next.lock({ timeout: 10_000 });
      await sleep(500);
      expect(await peer.queue(name)).toMatchObject([{ key: next.key, revision: next.token }]);
    },
  );

  test('a wait without a limit ends with the session', async () => {
    await using etcd = await startEtcd();
    await using peer = await Peer.connect(etcd.endpoints);
    const name = newName();
    const holder = await peer.mutex(name);
    await holder.lock();
    const mutex = await peer.mutex(name, { ttl: 1 });
    const waiting = mutex.lock();
    await peer.untilQueued(name, 2);
    etcd.members[0]?.pause();
    await expect(waiting).rejects.toMatchObject({ code: 'SESSION_EXPIRED', reason: 'expired' });
    expect(performance.now() - mutex.session.deadline).toBeLessThan(300);
    etcd.members[0]?.resume();
  });
});

async function leaderOf(etcd: Etcd) {
  for (const member of etcd.members) {
    await using peer = await Peer.connect([member.endpoint]);
    const { header, leader } = await peer.etcd.maintenance.status();
    if (header.member_id === leader) return member;
  }
  throw new Error('expected a leader');
}
