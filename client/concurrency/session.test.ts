// A session's life and above all its end: it must be known in time, by whatever way the lease or
// the connection is lost. `deadline` is when etcd may give our locks away, so every loss is compared
// with what another client sees.

import { getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Etcd3 } from 'etcd3';
import { describe, expect, inject, test, vi } from 'vitest';
import { type Etcd, startEtcd } from '../../scripts/lib/etcd.js';
import { Peer, startPeer } from '../../scripts/lib/peer.js';
import { type FaultProxy, startProxy } from '../../scripts/lib/proxy.js';
import { SessionExpired } from './errors.js';
import { Mutex } from './mutex.js';
import { Session, type SessionOptions } from './session.js';

const endpoints = inject('etcd');
const [endpoint = ''] = endpoints;

/** Milliseconds that etcd may take longer than a TTL until a lease is gone. */
const SWEEP = 2000;
/** Milliseconds that a timer may be late on a busy machine. */
const LATE = 1500;

let names = 0;
function newName(): string {
  return `/session-test/${process.pid}/${++names}`;
}

/** Resolves when the session has ended, with the time and the reason. */
async function end(session: Session): Promise<{ at: number; reason: SessionExpired }> {
  const { signal } = session;
  await new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    else signal.addEventListener('abort', resolve, { once: true });
  });
  expect(signal.reason).toBeInstanceOf(SessionExpired);
  return { at: performance.now(), reason: signal.reason };
}

/** Resolves when a renewal is confirmed. */
async function renewed(session: Session): Promise<void> {
  const { deadline } = session;
  await vi.waitFor(() => expect(session.deadline).toBeGreaterThan(deadline), {
    timeout: session.ttl * 1000,
    interval: 10,
  });
}

describe.concurrent('a session', () => {
  test('counts with the TTL that was granted, from when the request was sent', async () => {
    await using peer = await Peer.connect(endpoints);
    const before = performance.now();
    const session = await peer.session({ ttl: 1 });
    const after = performance.now();
    expect(session.ttl).toBe(2);
    expect(session.deadline).toBeGreaterThanOrEqual(before + 2000);
    expect(session.deadline).toBeLessThanOrEqual(after + 2000);
    const { deadline } = session;
    await renewed(session);
    // A third of the TTL later.
    expect(session.deadline - deadline).toBeGreaterThan(660);
    expect(session.deadline).toBeLessThanOrEqual(performance.now() + 2000);
  });

  test('does not count the time that etcd takes to answer', async () => {
    await using proxy = await startProxy(endpoint);
    await using through = await Peer.connect([proxy.endpoint]);
    await through.session();
    proxy.delay(200);
    // An answer comes 400 ms after its request, so when it is there that much of the TTL is over.
    const session = await through.session({ ttl: 3 });
    expect(session.deadline).toBeLessThan(performance.now() + 3000 - 399);
    await renewed(session);
    expect(session.deadline).toBeLessThan(performance.now() + 3000 - 399);
  });

  test('is kept alive for much longer than its TTL', async () => {
    await using peer = await Peer.connect(endpoints);
    const session = await peer.session({ ttl: 3 });
    const start = performance.now();
    while (performance.now() < start + 3 * session.ttl * 1000) await renewed(session);
    expect(session.expired).toBe(false);
    expect(await peer.leaseLives(session)).toBe(true);
  });

  test.each([undefined, 0, -5])('has a TTL of 60 s when %s is asked for', async (ttl) => {
    await using peer = await Peer.connect(endpoints);
    const options = ttl === undefined ? {} : { ttl };
    await using session = await Session.create(peer.etcd, options);
    expect(session.ttl).toBe(60);
  });

  test.each([1.5, Number.NaN, Number.POSITIVE_INFINITY, '5', 5n, null])(
    'refuses a TTL that is no whole number: %s',
    async (ttl) => {
      await using peer = await Peer.connect(endpoints);
      const creating = Session.create(peer.etcd, { ttl } as SessionOptions);
      await expect(creating).rejects.toThrow(RangeError);
      await expect(creating).rejects.toThrow(`got ${ttl}`);
    },
  );

  test('with a TTL that no timer can hold keeps quiet until it is time', async () => {
    await using program = startPeer(
      endpoints,
      `const etcd = await lib.connect({ endpoints });
       const session = await lib.Session.create(etcd, { ttl: 9e9 });
       await new Promise(setImmediate);
       let timers = 0;
       const { setTimeout } = globalThis;
       globalThis.setTimeout = (...args) => (timers++, setTimeout(...args));
       setTimeout(async () => {
         console.log('ttl', session.ttl, 'timers', timers, 'expired', session.expired);
         globalThis.setTimeout = setTimeout;
         await session.close();
         etcd.close();
       }, 200);`,
    );
    expect(await program.line('ttl')).toBe('ttl 9000000000 timers 0 expired false');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).toBe('');
  });

  test('works on a client that was not made by connect', async () => {
    const etcd = new Etcd3({ hosts: endpoints });
    {
      await using session = await Session.create(etcd, { ttl: 3 });
      const mutex = new Mutex(session, newName());
      await mutex.lock();
      await renewed(session);
      mutex.assertHeld();
    }
    etcd.close();
  });

  test('can adopt a lease, and keeps it alive', async () => {
    await using peer = await Peer.connect(endpoints);
    const { ID } = await peer.etcd.leaseClient.leaseGrant({ TTL: 3 });
    const session = await peer.session({ leaseId: BigInt(ID) });
    expect(session.leaseId).toBe(BigInt(ID));
    expect(session.ttl).toBe(3);
    await renewed(session);
    const mutex = new Mutex(session, newName());
    await mutex.lock();
    expect(await peer.queue(mutex.name)).toMatchObject([{ lease: BigInt(ID) }]);
  });

  test('cannot adopt a lease that does not exist', async () => {
    await using peer = await Peer.connect(endpoints);
    const adopting = Session.create(peer.etcd, { leaseId: 12345n });
    await expect(adopting).rejects.toMatchObject({ code: 'SESSION_EXPIRED', reason: 'revoked' });
  });

  test('when orphaned leaves its lease to run out, or to be adopted', async () => {
    await using peer = await Peer.connect(endpoints);
    const session = await peer.session({ ttl: 1 });
    const mutex = new Mutex(session, newName());
    await mutex.lock();
    await session.orphan();
    await session.orphan();
    expect(session.expired).toBe(true);
    expect(session.signal.reason).toMatchObject({ reason: 'orphaned' });
    const heir = await peer.session({ leaseId: session.leaseId });
    const inherited = new Mutex(heir, mutex.name);
    await inherited.lock();
    expect(inherited.token).toBeGreaterThan(0n);
    expect(await peer.queue(mutex.name)).toMatchObject([{ revision: inherited.token }]);
    await heir.orphan();
    const other = await peer.mutex(mutex.name);
    const orphaned = performance.now();
    await other.lock();
    expect(performance.now() - orphaned).toBeLessThan(2000 + SWEEP);
  });

  test('when closed revokes its lease, and can be closed again', async () => {
    await using peer = await Peer.connect(endpoints);
    const session = await peer.session();
    await Promise.all([session.close(), session.close()]);
    expect(session.signal.reason).toMatchObject({ reason: 'closed' });
    expect(await peer.leaseLives(session)).toBe(false);
    await session.close();
  });

  test('can be closed after its lease was lost', async () => {
    await using peer = await Peer.connect(endpoints);
    const session = await peer.session({ ttl: 1 });
    await peer.revoke(session);
    expect((await end(session)).reason).toMatchObject({ reason: 'revoked' });
    await session.close();
    expect(session.signal.reason).toMatchObject({ reason: 'revoked' });
  });

  test('is closed by await using', async () => {
    await using peer = await Peer.connect(endpoints);
    let kept: Session;
    {
      await using session = await Session.create(peer.etcd);
      kept = session;
      expect(await peer.leaseLives(session)).toBe(true);
    }
    expect(await peer.leaseLives(kept)).toBe(false);
  });

  test('takes no longer to close than its lease has left when etcd does not answer', async () => {
    await using proxy = await startProxy(endpoint);
    await using peer = await Peer.connect([proxy.endpoint]);
    const session = await peer.session({ ttl: 1 });
    proxy.swallow();
    const { deadline } = session;
    await session.close();
    expect(performance.now()).toBeGreaterThanOrEqual(deadline - 1);
    expect(performance.now()).toBeLessThan(deadline + LATE);
  });

  test('whose lease is revoked learns of it at the next renewal: once, late listeners too, and then is silent', async () => {
    await using proxy = await startProxy(endpoint);
    await using through = await Peer.connect([proxy.endpoint]);
    await using peer = await Peer.connect(endpoints);
    const session = await through.session({ ttl: 1 });
    let events = 0;
    session.signal.addEventListener('abort', () => events++);
    await peer.revoke(session);
    const revoked = performance.now();
    const { at, reason } = await end(session);
    expect(reason).toMatchObject({ code: 'SESSION_EXPIRED', reason: 'revoked' });
    expect(at - revoked).toBeLessThan(2000 / 3 + 1000);
    // A late listener reads it from the signal, as with any AbortSignal.
    expect(() => session.signal.throwIfAborted()).toThrow(reason);
    await expect(new Mutex(session, newName()).lock()).rejects.toBe(reason);

    // What is left is that the last stream is taken down.
    await sleep(200);
    const { toServer } = proxy.bytes;
    await sleep(2 * 2000);
    // Less than any request: the connection itself may still answer a ping.
    expect(proxy.bytes.toServer - toServer).toBeLessThan(60);
    expect(events).toBe(1);
  });

  test('that is lost while nobody listens harms nobody, and keeps no process alive', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    await using program = startPeer(
      endpoints,
      `process.on('unhandledRejection', (error) => console.log('unhandled', error));
       const etcd = await lib.connect({ endpoints });
       const session = await lib.Session.create(etcd, { ttl: 1 });
       await new lib.Mutex(session, ${JSON.stringify(name)}).lock();
       console.log('locked', String(session.leaseId));
       while (!session.expired) await new Promise(setImmediate);
       console.log('lost', session.signal.aborted);
       etcd.close();`,
    );
    const leaseId = BigInt((await program.line('locked')).split(' ')[1] ?? '');
    await peer.etcd.leaseClient.leaseRevoke({ ID: String(leaseId) });
    expect(await program.line('lost')).toBe('lost true');
    const lost = performance.now();
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(performance.now() - lost).toBeLessThan(1000);
    expect(program.stdout + program.stderr).not.toContain('unhandled');
  });

  test('that is closed leaves no timer, no listener and no connection: the process ends by itself', async () => {
    await using program = startPeer(
      endpoints,
      `const etcd = await lib.connect({ endpoints });
       const { signal } = new AbortController();
       const [a, b] = [await lib.Session.create(etcd, { signal }), await lib.Session.create(etcd)];
       const locks = [a, b].map((session) => new lib.Mutex(session, ${JSON.stringify(newName())}));
       await locks[0].lock({ signal, timeout: 60_000 });
       await locks[1].lock({ timeout: 50 }).catch((error) => console.log(error.code));
       const waiting = locks[1].lock({ signal, timeout: 60_000 });
       await locks[0].unlock({ timeout: 60_000 });
       await waiting;
       await a.close();
       await b.close();
       etcd.close();
       console.log('closed');
       console.log('timers', process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length);`,
    );
    await program.line('TIMEOUT');
    await program.line('closed');
    const closed = performance.now();
    expect(await program.line('timers')).toBe('timers 0');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(performance.now() - closed).toBeLessThan(1000);
  });

  test('takes its listeners off the signal that could have ended its creation', async () => {
    await using peer = await Peer.connect(endpoints);
    const { signal } = new AbortController();
    await peer.session({ signal });
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  test('is not created when etcd does not answer in time, or when the signal says so', async () => {
    await using proxy = await startProxy(endpoint);
    await using peer = await Peer.connect([proxy.endpoint]);
    const { ID } = await peer.etcd.leaseClient.leaseGrant({ TTL: 60 });
    proxy.swallow();
    for (const leaseId of [0n, BigInt(ID)]) {
      const start = performance.now();
      const creating = peer.session({ leaseId, timeout: 400 });
      await expect(creating).rejects.toMatchObject({ code: 'UNREACHABLE' });
      expect(performance.now() - start).toBeLessThan(1400);
      const signal = AbortSignal.timeout(100);
      await expect(peer.session({ leaseId, signal })).rejects.toMatchObject({
        name: 'TimeoutError',
      });
    }
  });

  test('whose process does not run finds out in the very tick in which it goes on', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    await using program = startPeer(
      endpoints,
      `const etcd = await lib.connect({ endpoints });
       const session = await lib.Session.create(etcd, { ttl: 1 });
       const mutex = new lib.Mutex(session, ${JSON.stringify(name)});
       await mutex.lock();
       console.log('locked', String(mutex.token), 'expired', session.expired);
       const end = performance.now() + session.ttl * 1000 + 2000;
       while (performance.now() < end);
       const { expired } = session;
       let held = 'held';
       try { mutex.assertHeld(); } catch (error) { held = error.code + ' ' + error.reason; }
       console.log('after', expired, held, 'signal', session.signal.aborted);
       session.signal.addEventListener('abort', () => {
         console.log('signal', session.signal.reason.reason);
         etcd.close();
       });`,
    );
    expect(await program.line('locked')).toMatch(/expired false$/);
    // The next one has the lock while the old holder cannot know.
    const next = await peer.mutex(name);
    await next.lock();
    expect(await program.line('after')).toBe('after true SESSION_EXPIRED expired signal false');
    await program.line(/^signal expired$/);
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });
});

describe.concurrent('a session that etcd cannot be reached from ends by its deadline', () => {
  const cases: [string, number, (proxy: FaultProxy) => void][] = [
    ['all bytes are swallowed', 10, (proxy) => proxy.swallow()],
    ['answers do not arrive', 3, (proxy) => proxy.dropToClient()],
    ['requests do not arrive', 3, (proxy) => proxy.dropToServer()],
    ['connections are refused', 3, (proxy) => proxy.refuse()],
  ];

  test.each(cases)('before another can have its lock: %s', async (_, ttl, hurt) => {
    await using proxy = await startProxy(endpoint);
    await using through = await Peer.connect([proxy.endpoint]);
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const before = performance.now();
    const mutex = await through.mutex(name, { ttl });
    const { session } = mutex;
    await mutex.lock();
    const after = performance.now();
    // Only what was sent before may still be confirmed.
    hurt(proxy);
    const next = await peer.mutex(name);
    const locked = next.lock().then(() => {
      expect(session.expired).toBe(true);
      return performance.now();
    });
    expect(session.ttl).toBe(ttl);
    expect(session.deadline).toBeGreaterThanOrEqual(before + ttl * 1000);
    expect(session.deadline).toBeLessThanOrEqual(after + ttl * 1000);
    const { at, reason } = await end(session);
    const { deadline } = session;
    expect(reason).toMatchObject({ reason: 'expired' });
    expect(deadline).toBeLessThanOrEqual(after + ttl * 1000);
    expect(at).toBeGreaterThanOrEqual(deadline);
    expect(at).toBeLessThan(deadline + LATE);
    // Requests that arrive do renew the lease in etcd, so there it may live for another TTL.
    expect(await locked).toBeGreaterThan(at);
    expect(performance.now()).toBeLessThan(at + ttl * 1000 + SWEEP);
    // A lease once lost is never revived, whatever still comes in.
    proxy.pass();
    await expect(mutex.lock()).rejects.toBe(reason);
    expect(session.deadline).toBe(deadline);
  });

  test('even if the answer to a renewal comes right after it', async () => {
    await using proxy = await startProxy(endpoint);
    await using through = await Peer.connect([proxy.endpoint]);
    const session = await through.session({ ttl: 3 });
    await renewed(session);
    proxy.dropToClient();
    const { deadline } = session;
    const { reason } = await end(session);
    proxy.pass();
    expect(reason).toMatchObject({ reason: 'expired' });
    await sleep(100);
    expect(session.deadline).toBe(deadline);
  });
});

describe.concurrent('when etcd restarts', () => {
  async function restartAfter(etcd: Etcd, ready: () => Promise<unknown>): Promise<void> {
    await Promise.all(etcd.members.map((member) => member.kill()));
    await ready();
    await Promise.all(etcd.members.map((member) => member.restart()));
  }

  test('within the TTL, the session and its lock are kept', async () => {
    await using etcd = await startEtcd();
    await using peer = await Peer.connect(etcd.endpoints);
    const name = newName();
    const mutex = await peer.mutex(name, { ttl: 8 });
    const waiting = await peer.mutex(name, { ttl: 8 });
    await mutex.lock();
    const locked = waiting.lock();
    await peer.untilQueued(name, 2);
    await restartAfter(etcd, async () => {});
    await renewed(mutex.session);
    await renewed(mutex.session);
    mutex.assertHeld();
    expect(await peer.queue(name)).toMatchObject([{ revision: mutex.token }, {}]);
    await mutex.unlock();
    await locked;
    waiting.assertHeld();
  });

  test('after more than the TTL, they are lost, and said to be by the deadline', async () => {
    await using etcd = await startEtcd();
    await using peer = await Peer.connect(etcd.endpoints);
    const name = newName();
    const mutex = await peer.mutex(name, { ttl: 1 });
    await mutex.lock();
    await restartAfter(etcd, async () => {
      const { at, reason } = await end(mutex.session);
      expect(reason).toMatchObject({ reason: 'expired' });
      expect(at).toBeLessThan(mutex.session.deadline + LATE);
    });
    const next = await peer.mutex(name);
    await next.lock();
    expect(await peer.queue(name)).toMatchObject([{ revision: next.token }]);
    await mutex.unlock();
    expect(await peer.queue(name)).toHaveLength(1);
  });
});
