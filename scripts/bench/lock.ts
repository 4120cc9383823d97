// An uncontended lock and unlock. The floor is the two transactions that they make, sent raw with etcd3;
// etcd3's own Lock grants a lease for each lock and revokes it, and so makes three calls.

import { Mutex } from '../../client/concurrency/index.js';
import { startEtcd } from '../lib/etcd.js';
import { Peer } from '../lib/peer.js';
import type { Case, Row } from './case.js';
import { inTurn, median, ratio } from './measure.js';
import { RawLock } from './raw-lock.js';

export const lock: Case = {
  about: 'lock + unlock when nobody else wants the lock',
  async *run({ scale, signal }) {
    await using server = await startEtcd();
    await using peer = await Peer.connect(server.endpoints);
    const { etcd } = peer;
    const session = await peer.session();
    const mutex = new Mutex(session, 'mutex');
    const raw = new RawLock(session, 'raw');
    const contestants = {
      mutex: async () => {
        await mutex.lock();
        await mutex.unlock();
      },
      raw: async () => {
        await raw.lock();
        await raw.unlock();
      },
      etcd3: () => etcd.lock('etcd3').do(() => {}),
    };
    await mutex.lock();
    if ((await keys()) !== 1) throw new Error('expected the lock to be a key');
    await mutex.unlock();
    for (const contestant of Object.values(contestants)) await contestant();
    if ((await keys()) !== 0) throw new Error('expected nothing to be left behind');

    yield await compare('raw', 'the two calls', 3000, { atMost: 1.1 });
    yield await compare('etcd3', "etcd3's own Lock", 600);

    /** In pairs: what etcd3's Lock leaves to be done after it would count as the next one's. */
    async function compare(
      rival: 'raw' | 'etcd3',
      what: string,
      most: number,
      aim?: { atMost: number },
    ): Promise<Row> {
      const pair = { mutex: contestants.mutex, rival: contestants[rival] };
      const rounds = Math.ceil(most * scale);
      // Until Node has compiled it all: our part of a lock took twice as long after 300 rounds.
      const { mutex, rival: theirs } = await inTurn(pair, { rounds, warmUp: rounds, signal });
      return {
        what: 'lock + unlock, uncontended',
        value: median(mutex),
        unit: 'ms',
        against: { what, value: median(theirs), ratio: ratio(mutex, theirs), ...(aim && { aim }) },
      };
    }

    async function keys(): Promise<number> {
      return Number(await etcd.getAll().count());
    }
  },
};
