// Taking over from a holder whose lease ends, to the grant of the one who waits: from the call that
// revokes the lease, and after SIGKILL of the holder. Then nothing happens until etcd ends the lease, two
// seconds at least with its default settings: what counts is the time from there, as its watch tells it.

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Mutex } from '../../client/concurrency/index.js';
import { type Etcd, startEtcd } from '../lib/etcd.js';
import { Peer, startPeer } from '../lib/peer.js';
import type { Case } from './case.js';
import { rawPut } from './contender.js';
import { inTurn, median, quantile, ratio } from './measure.js';
import { RawLock } from './raw-lock.js';

export const takeover: Case = {
  about: "from the end of a holder's lease to the next grant",
  async *run({ scale, signal }) {
    await using server = await startEtcd();
    await using peer = await Peer.connect(server.endpoints);
    await using other = await Peer.connect(server.endpoints);
    const own = await peer.session();
    const contestants = {
      revoked: () => afterRevocation(peer, other, Mutex),
      raw: () => afterRevocation(peer, other, RawLock),
      put: () => rawPut(own),
    };
    const rounds = Math.ceil(200 * scale);
    const { revoked, raw, put } = await inTurn(contestants, { rounds, warmUp: rounds, signal });
    for (const part of [0.5, 0.99]) {
      const [value, theirs] = [quantile(revoked, part), quantile(put, part)];
      const against = { what: 'a raw put', value: theirs, ratio: value / theirs };
      const aim = { ratio: ratio(revoked, put), aim: { atMost: 3 } };
      yield {
        what: `take-over after lease revoke, p${part * 100}`,
        value,
        unit: 'ms',
        against: part === 0.5 ? { ...against, ...aim } : against,
      };
    }
    yield {
      what: 'the same to a waiter by raw calls, p50',
      value: median(raw),
      unit: 'ms',
      against: { what: 'a raw put', value: median(put), ratio: ratio(raw, put) },
    };

    const ends: number[] = [];
    const grants: number[] = [];
    const puts: number[] = [];
    for (let round = 0; round < Math.ceil(4 * scale); round++) {
      signal.throwIfAborted();
      const { ended, granted } = await afterKill(server, peer, `kill ${round}`);
      ends.push(ended);
      grants.push(granted - ended);
      const { put } = await inTurn({ put: contestants.put }, { rounds: 20, warmUp: 5, signal });
      puts.push(median(put));
    }
    yield { what: "from SIGKILL to the lease's end, TTL 2 s", value: median(ends), unit: 'ms' };
    yield {
      what: "take-over after the lease's end",
      value: median(grants),
      unit: 'ms',
      against: { what: 'a raw put', value: median(puts), ratio: ratio(grants, puts) },
    };
  },
};

/** Milliseconds after which one who has joined a queue waits to be told. */
const SETTLED = 20;

async function afterRevocation(
  peer: Peer,
  other: Peer,
  Lock: typeof Mutex | typeof RawLock,
): Promise<number> {
  const [holder, session] = [await other.mutex('revoke'), await peer.session()];
  const waiter = new Lock(session, 'revoke');
  await holder.lock();
  const waiting = waiter.lock();
  await peer.untilQueued('revoke', 2);
  await sleep(SETTLED);
  const start = performance.now();
  const revoking = other.revoke(holder.session);
  await waiting;
  const time = performance.now() - start;
  await revoking;
  await expectAlone(peer, 'revoke', waiter.token);
  await waiter.unlock();
  await Promise.all([holder.session, session].map((one) => one.close()));
  return time;
}

/** Milliseconds from the kill to what etcd's watch says of the lease, and to the grant. */
async function afterKill({ endpoints }: Etcd, peer: Peer, name: string) {
  await using holder = startPeer(
    endpoints,
    `const session = await lib.Session.create(await lib.connect({ endpoints }), { ttl: 1 });
    await new lib.Mutex(session, ${JSON.stringify(name)}).lock();
    console.log('holds');`,
  );
  await holder.line('holds');
  const waiter = await peer.mutex(name);
  const watcher = await peer.etcd.watch().prefix(`${name}/`).create();
  try {
    const ending = once(watcher, 'delete').then(() => performance.now());
    const waiting = waiter.lock().then(() => performance.now());
    await peer.untilQueued(name, 2);
    const start = performance.now();
    holder.signal('SIGKILL');
    const [ended, granted] = await Promise.all([ending, waiting]);
    await expectAlone(peer, name, waiter.token);
    await waiter.session.close();
    return { ended: ended - start, granted: granted - start };
  } finally {
    await watcher.cancel();
  }
}

async function expectAlone(peer: Peer, name: string, token: bigint): Promise<void> {
  const [first, ...others] = await peer.queue(name);
  if (first?.revision !== token || others.length > 0) {
    throw new Error('expected the one who took over to be alone');
  }
}
