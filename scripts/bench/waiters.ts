// What waiters cost, one to a thousand for one lock in one process: the work of a hand-over must not grow
// with those it is not for. What etcd does, it says itself in its metrics. Their memory: see memory.ts.

import { Mutex, type Session } from '../../client/concurrency/index.js';
import { type Etcd, startEtcd } from '../lib/etcd.js';
import { Peer } from '../lib/peer.js';
import type { Case, Row } from './case.js';
import { contend, handOvers, type Turn } from './contender.js';
import { until } from './until.js';

export const waiters: Case = {
  about: 'one to a thousand waiters for one lock in one process',
  async *run({ scale, signal }) {
    await using server = await startEtcd();
    let one: Figures | undefined;
    for (const count of [1, 10, 100, 1000]) {
      const figures = await measure(server, count, Math.ceil(200 * scale), signal);
      one ??= figures;
      const cpu = (name: 'cpu' | 'etcdCpu', where: string, least: Figures): Row => {
        const value = figures[name];
        const against = { what: 'with one', value: least[name], ratio: value / least[name] };
        return { what: `CPU a hand-over, ${where}, ${count} waiting`, value, unit: 'ms', against };
      };
      const atMost = (name: 'streams' | 'events', what: string, most: number): Row => {
        const value = figures[name];
        const against = { what: 'one', value: 1, ratio: value, aim: { atMost: most } };
        return { what: `${what}, ${count} waiting`, value, unit: '', against };
      };
      yield atMost('streams', 'watch streams', 1);
      // One to whom it is handed, and one to the watch of the holder on its own key, if that still is.
      yield atMost('events', 'events a hand-over', 2);
      yield cpu('cpu', 'here', one);
      yield cpu('etcdCpu', 'etcd', one);
    }
  },
};

/** How many join at a time: what is measured is not how etcd bears a crowd. */
const AT_ONCE = 50;

type Figures = { streams: number; events: number; cpu: number; etcdCpu: number };

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

  const turns: Turn[] = [];
  // Enough of them, or one has failed.
  const stop = new AbortController();
  const ends = AbortSignal.any([signal, stop.signal]);
  const options = { puts: 0, signal: ends };
  const contending: Promise<void>[] = [];
  const untilTurns = (least: number) => until(`${least} turns`, () => turns.length >= least, ends);
  try {
    for (const session of sessions) {
      const contender = contend(session, new Mutex(session, name), options, (turn) =>
        turns.push(turn),
      );
      contender.catch((error) => stop.abort(error));
      contending.push(contender);
      if (contending.length % AT_ONCE > 0 && contending.length < sessions.length) continue;
      // Each watches its own key and the one before it.
      const watching = before.watchers + 2 * contending.length;
      const all = async () => (await metrics(server)).watchers === watching;
      await until(`${watching} watches, by etcd's metrics`, all, ends);
    }
    const waiting = await metrics(server);
    await holder.unlock();
    await untilTurns(turnCount / 4);
    const start = await state(server, turns);
    await untilTurns(turnCount);
    const end = await state(server, turns);
    const handedOver = end.turns - start.turns;
    return {
      streams: waiting.streams - before.streams,
      events: (end.events - start.events) / handedOver,
      cpu: (end.cpu - start.cpu) / handedOver,
      etcdCpu: (end.etcdCpu - start.etcdCpu) / handedOver,
    };
  } finally {
    stop.abort();
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
  const of = (name: string): number => {
    const value = new RegExp(`^${name} (.+)$`, 'm').exec(text)?.[1];
    if (value === undefined) throw new Error(`expected etcd to tell ${name} in its metrics`);
    return Number(value);
  };
  return {
    watchers: of('etcd_debugging_mvcc_watcher_total'),
    streams: of('etcd_debugging_mvcc_watch_stream_total'),
    events: of('etcd_debugging_mvcc_events_total'),
    etcdCpu: of('process_cpu_seconds_total') * 1000,
  };
}
