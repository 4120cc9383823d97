// What waiters cost, one to a thousand for one lock in one process: their memory, and the work of a
// hand-over, which must not grow with those it is not for. What etcd does, it says itself in its metrics.

import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Session } from '../../client/concurrency/index.js';
import { type Etcd, startEtcd } from '../lib/etcd.js';
import { Peer } from '../lib/peer.js';
import type { Case, Row } from './case.js';
import { contend, handOvers, type Turn } from './contender.js';

export const waiters: Case = {
  about: 'one to a thousand waiters for one lock in one process',
  async *run({ scale, signal }) {
    await using server = await startEtcd();
    let one: Figures | undefined;
    let hundred: Figures | undefined;
    for (const count of [1, 10, 100, 1000]) {
      const figures = await measure(server, count, Math.ceil(200 * scale), signal);
      one ??= figures;
      if (count >= 100) hundred ??= figures;
      const row = (name: keyof Figures, what: string, unit: Row['unit'], least: Figures): Row => {
        const value = figures[name];
        const fewest = least === one ? 'with one' : 'with a hundred';
        const against = { what: fewest, value: least[name], ratio: value / least[name] };
        return { what: `${what}, ${count} waiting`, value, unit, against };
      };
      const atMost = (name: 'streams' | 'events', what: string, most: number): Row => {
        const value = figures[name];
        const against = { what: 'one', value: 1, ratio: value, aim: { atMost: most } };
        return { what: `${what}, ${count} waiting`, value, unit: '', against };
      };
      yield atMost('streams', 'watch streams', 1);
      // One to whom it is handed, and one to the watch of the holder on its own key, if that still is.
      yield atMost('events', 'events a hand-over', 2);
      // What fewer of them take is lost in what else comes and goes.
      if (hundred) yield row('heap', 'heap a waiter', 'KiB', hundred);
      yield row('cpu', 'CPU a hand-over, here', 'ms', one);
      yield row('etcdCpu', 'CPU a hand-over, etcd', 'ms', one);
    }
  },
};

/** How many join at a time: what is measured is not how etcd bears a crowd. */
const AT_ONCE = 50;

type Figures = { streams: number; events: number; heap: number; cpu: number; etcdCpu: number };

async function measure(
  server: Etcd,
  count: number,
  turnCount: number,
  signal: AbortSignal,
): Promise<Figures> {
  await using peer = await Peer.connect(server.endpoints);
  const name = `waiters ${count}`;
  const holder = await peer.mutex(name);
  // While one of them has the lock, so many wait.
  const sessions: Session[] = [];
  for (let i = 0; i <= count; i++) sessions.push(await peer.session());
  await holder.lock();
  const before = await metrics(server);
  const empty = heap();

  const turns: Turn[] = [];
  const enough = new AbortController();
  const options = { name, puts: 0, signal: AbortSignal.any([signal, enough.signal]) };
  const contending: Promise<void>[] = [];
  const until = async (done: () => boolean | Promise<boolean>): Promise<void> => {
    while (!(await done())) await Promise.race([sleep(5, undefined, { signal }), ...contending]);
  };
  try {
    for (const session of sessions) {
      contending.push(contend(session, options, (turn) => turns.push(turn)));
      if (contending.length % AT_ONCE > 0 && contending.length < sessions.length) continue;
      // Each watches its own key and the one before it.
      const watching = before.watchers + 2 * contending.length;
      await until(async () => (await metrics(server)).watchers === watching);
    }
    const waiting = await metrics(server);
    const full = heap();
    await holder.unlock();
    await until(() => turns.length >= turnCount / 4);
    const start = await state(server, turns);
    await until(() => turns.length >= turnCount);
    const end = await state(server, turns);
    const handedOver = end.turns - start.turns;
    return {
      streams: waiting.streams - before.streams,
      heap: (full - empty) / 1024 / sessions.length,
      events: (end.events - start.events) / handedOver,
      cpu: (end.cpu - start.cpu) / handedOver,
      etcdCpu: (end.etcdCpu - start.etcdCpu) / handedOver,
    };
  } finally {
    enough.abort();
    await Promise.all(contending);
    handOvers(turns.sort((a, b) => a.granted - b.granted));
  }
}

async function state(server: Etcd, turns: readonly Turn[]) {
  const { user, system } = process.cpuUsage();
  return { cpu: (user + system) / 1000, turns: turns.length, ...(await metrics(server)) };
}

/** Of watches: how many, on how many streams, and the events sent to them; and the CPU time in ms. */
async function metrics({ endpoints }: Etcd) {
  const text = await (await fetch(`${endpoints[0]}/metrics`)).text();
  const of = (name: string) => Number(new RegExp(`^${name} (.+)$`, 'm').exec(text)?.[1]);
  return {
    watchers: of('etcd_debugging_mvcc_watcher_total'),
    streams: of('etcd_debugging_mvcc_watch_stream_total'),
    events: of('etcd_debugging_mvcc_events_total'),
    etcdCpu: of('process_cpu_seconds_total') * 1000,
  };
}

/** Bytes in use after a garbage collection. */
function heap(): number {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  collect();
  return process.memoryUsage().heapUsed;
}
