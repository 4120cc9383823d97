// An election is the mutex's queue with a value; what the queue promises is tested there.

import { randomUUID } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, inject, test, vi } from 'vitest';
import { etcdctl } from '../../scripts/lib/etcd.js';
import { Peer } from '../../scripts/lib/peer.js';
import { Program } from '../../scripts/lib/program.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { Election, type Leader } from './election.js';
import { NoLeader, NotLeader, SessionExpired, Timeout, Unreachable } from './errors.js';

const endpoints = inject('etcd');

function newName(): string {
  return `/election-test/${randomUUID()}`;
}

/** Collects what an observer sees until it is stopped. */
function observe(election: Election) {
  const stop = new AbortController();
  const seen: Leader[] = [];
  const ended = (async () => {
    for await (const leader of election.observe({ signal: stop.signal })) seen.push(leader);
  })();
  return {
    seen,
    async until(value: string) {
      await vi.waitFor(() => expect(seen.at(-1)?.value).toBe(value), { timeout: 5000 });
    },
    async stop() {
      stop.abort(new Error('seen enough'));
      await expect(ended).rejects.toThrow('seen enough');
    },
  };
}

describe.concurrent('an election', () => {
  test('the first to campaign leads with its value, under a key bound to its lease', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const session = await peer.session();
    const election = new Election(session, name);
    expect([election.key, election.token]).toEqual(['', 0n]);
    await expect(election.leader()).rejects.toThrow(new NoLeader());
    await election.campaign('me');
    expect(election.key).toBe(`${name}/${session.leaseId.toString(16)}`);
    expect(await peer.queue(name)).toEqual([
      { key: election.key, value: 'me', lease: session.leaseId, revision: election.token },
    ]);
    expect(await election.leader()).toMatchObject({
      key: election.key,
      value: 'me',
      token: election.token,
    });
  });

  test('the next in the queue leads when the leader resigns, with a higher token', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [
      new Election(await peer.session(), name),
      new Election(await peer.session(), name),
    ];
    await a.campaign('a');
    const first = a.token;
    const campaign = b.campaign('b');
    await peer.untilQueued(name, 2);
    expect((await b.leader()).value).toBe('a');
    await a.resign();
    await campaign;
    expect((await a.leader()).value).toBe('b');
    expect(b.token).toBeGreaterThan(first);
    expect([a.key, a.token]).toEqual(['', 0n]);
  });

  test('a proclamation changes the value and keeps the token', async () => {
    await using peer = await Peer.connect(endpoints);
    const election = new Election(await peer.session(), newName());
    await election.campaign('one');
    const { token } = election;
    await election.proclaim('two');
    await election.campaign('three');
    expect(election.token).toBe(token);
    expect(await election.leader()).toMatchObject({ value: 'three', token });
  });

  test('a time limit that is none is refused, and the leadership is kept', async () => {
    await using peer = await Peer.connect(endpoints);
    const election = new Election(await peer.session(), newName());
    await election.campaign('a');
    await expect(election.resign({ timeout: -1 })).rejects.toThrow(RangeError);
    expect(await election.leader()).toMatchObject({ value: 'a' });
    await election.resign();
    await expect(election.leader()).rejects.toThrow(NoLeader);
  });

  test('who does not lead cannot proclaim, and may resign', async () => {
    await using peer = await Peer.connect(endpoints);
    const election = new Election(await peer.session(), newName());
    await expect(election.proclaim('no')).rejects.toThrow(NotLeader);
    await election.resign();
    await election.campaign('yes');
    await election.resign();
    await expect(election.proclaim('no')).rejects.toThrow(NotLeader);
    await expect(election.leader()).rejects.toThrow(NoLeader);
  });

  test('a leader whose key was deleted learns of it when it proclaims', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const election = new Election(await peer.session(), name);
    await election.campaign('one');
    await peer.etcd.delete().key(election.key);
    await expect(election.proclaim('two')).rejects.toThrow(NotLeader);
    expect(await peer.queue(name)).toEqual([]);
  });

  test('a leader whose lease was revoked gets SessionExpired or NotLeader, never a success', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const session = await peer.session();
    const election = new Election(session, name);
    await election.campaign('one');
    await peer.etcd.leaseClient.leaseRevoke({ ID: String(session.leaseId) });
    const error = await election.proclaim('two').catch((error) => error);
    expect([NotLeader, SessionExpired]).toContain(error.constructor);
    expect(await peer.queue(name)).toEqual([]);
  });

  test('a campaign that is given up leaves no key behind', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [
      new Election(await peer.session(), name),
      new Election(await peer.session(), name),
    ];
    await a.campaign('a');
    await expect(b.campaign('b', { timeout: 1000 })).rejects.toThrow(Timeout);
    const reason = new Error('enough');
    await expect(b.campaign('b', { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(await peer.queue(name)).toMatchObject([{ key: a.key }]);
    expect(b.key).toBe('');
  });

  test('a campaign whose own key is deleted while it waits ends with SessionExpired', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [
      new Election(await peer.session(), name),
      new Election(await peer.session(), name),
    ];
    await a.campaign('a');
    const campaign = b.campaign('b');
    const rejected = expect(campaign).rejects.toThrow(SessionExpired);
    await peer.untilQueued(name, 2);
    const [, own] = await peer.queue(name);
    await peer.etcd.delete().key(own?.key ?? '');
    await rejected;
  });

  test('it is resumed by key and token, and from then on the old object has no say', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const session = await peer.session();
    const before = new Election(session, name);
    await before.campaign('before');
    const after = Election.resume(session, name, { key: before.key, token: before.token });
    expect([after.key, after.token]).toEqual([before.key, before.token]);
    await after.proclaim('after');
    expect((await before.leader()).value).toBe('after');
    await after.resign();
    await expect(before.proclaim('late')).rejects.toThrow(NotLeader);
    expect(await peer.queue(name)).toEqual([]);
  });

  test('another session resumes what a dead process left, and its lease takes over the key', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [old, next] = [await peer.session(), await peer.session()];
    const before = new Election(old, name);
    await before.campaign('before');
    const after = Election.resume(next, name, { key: before.key, token: before.token });
    await after.proclaim('before');
    await old.close();
    expect(await peer.queue(name)).toMatchObject([{ value: 'before', lease: next.leaseId }]);
    await after.resign();
    expect(await peer.queue(name)).toEqual([]);
  });

  test('an observer sees the present leader, each last proclamation and each new leader', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const [a, b] = [
      new Election(await peer.session(), name),
      new Election(await peer.session(), name),
    ];
    const early = observe(b);
    await a.campaign('a1');
    await early.until('a1');
    const late = observe(b);
    await late.until('a1');
    await a.proclaim('a2');
    await early.until('a2');
    await a.resign();
    await b.campaign('b1');
    await early.until('b1');
    await late.until('b1');
    expect(early.seen.map(({ value }) => value)).toEqual(['a1', 'a2', 'b1']);
    expect(early.seen.map(({ token }) => token)).toEqual([
      early.seen[0]?.token,
      early.seen[0]?.token,
      b.token,
    ]);
    await early.stop();
    await late.stop();
  });

  test('an observer uses one stream, and ends it when it stops looking', async () => {
    await using peer = await Peer.connect(endpoints);
    const election = new Election(await peer.session(), newName());
    await election.campaign('me');
    for await (const { value } of election.observe()) {
      expect(value).toBe('me');
      break;
    }
    await setImmediate();
    const opened = vi.spyOn(peer.etcd.watchClient, 'watch');
    const again = observe(election);
    await again.until('me');
    await election.proclaim('me again');
    await again.until('me again');
    // The first one's had gone, or there had been no need for a new one.
    expect(opened).toHaveBeenCalledTimes(1);
    await again.stop();
  });

  test('a proclamation whose answer is lost is not made twice, and a late one never wins', async () => {
    await using healthy = await Peer.connect(endpoints);
    await using proxy = await startProxy(endpoints[0] ?? '');
    await using peer = await Peer.connect([proxy.endpoint]);
    const name = newName();
    const election = new Election(await peer.session({ ttl: 6 }), name);
    await election.campaign('one');
    proxy.cutAfterRequest();
    await election.proclaim('two');
    const { modRevision } = await new Election(await healthy.session(), name).leader();
    await election.proclaim('three');
    const leader = await election.leader();
    expect(leader.value).toBe('three');
    expect(leader.modRevision).toBeGreaterThan(modRevision);
    expect(leader.token).toBe(election.token);
  });

  test('asking for the leader ends in time when etcd is silent', async () => {
    await using proxy = await startProxy(endpoints[0] ?? '');
    await using peer = await Peer.connect([proxy.endpoint]);
    const election = new Election(await peer.session({ ttl: 6 }), newName());
    proxy.swallow();
    await expect(election.leader({ timeout: 300 })).rejects.toThrow(Unreachable);
    proxy.pass();
  });

  test('`etcdctl elect` takes part: it waits for us, and we wait for it', async () => {
    await using peer = await Peer.connect(endpoints);
    const name = newName();
    const election = new Election(await peer.session(), name);
    await election.campaign('ours');
    const args = ['--endpoints', endpoints.join(','), 'elect', name, 'theirs'];
    await using ctl = Program.start(etcdctl, args, { env: { ETCDCTL_API: '3' } });
    await peer.untilQueued(name, 2);
    expect((await election.leader()).value).toBe('ours');
    await election.resign();
    await ctl.line('theirs');
    const again = election.campaign('ours again');
    await peer.untilQueued(name, 2);
    ctl.signal('SIGINT');
    await again;
    expect((await election.leader()).value).toBe('ours again');
  });
});
