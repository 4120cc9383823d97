// Storage under load, each rule and each store: on the memory store against the floor, a bare
// node:http server that parses the same bodies and sends them back, and against the Express app that
// most would write; any other rule or store against upstream's own, the memory store with `equal`. One
// connection tells the time of a request, 32 tell the rate.

import { type Etcd, startEtcd } from '../lib/etcd.js';
import type { Case, Row } from './case.js';
import { expectDisk, temporaryFolder } from './folder.js';
import { median, ratio } from './measure.js';
import { inTurns, type Load } from './storage-load.js';
import { OPS, requestsOf, startOurs, startRival, takeLock } from './storage-servers.js';

const MANY = 32;

export const storage: Case = {
  about: 'storage: requests a second and the time of one, for each rule and store',
  async *run(bench) {
    await using etcd = await startEtcd();
    const token = await takeLock(etcd);
    await using ours = await startOurs(token, [], bench);
    await using bare = await startRival('storage-bare.ts', bench);
    await using express = await startRival('storage-express.ts', bench);
    for (const op of OPS) {
      for (const connections of [1, MANY]) {
        const requests = requestsOf(op, token, connections);
        const under = (port: number) => ({ port, requests });
        const loads = await inTurns(
          { ours: under(ours.port), bare: under(bare.port), express: under(express.port) },
          21,
          bench,
        );
        const what = `memory, equal: ${op}`;
        yield compared(what, connections, loads.ours, 'bare node:http', loads.bare, AIMS);
        yield compared(what, connections, loads.ours, 'an Express app', loads.express);
        yield p99(what, connections, loads.ours);
      }
    }
    for (const [name, argsIn] of others(etcd)) {
      await using folder = await temporaryFolder();
      await using other = await startOurs(token, argsIn(folder.path), bench);
      for (const op of OPS) {
        for (const connections of [1, MANY]) {
          const requests = requestsOf(op, token, connections);
          const loads = await inTurns(
            { other: { port: other.port, requests }, ours: { port: ours.port, requests } },
            3,
            bench,
          );
          yield compared(`${name}: ${op}`, connections, loads.other, 'memory, equal', loads.ours);
          yield p99(`${name}: ${op}`, connections, loads.other);
        }
      }
    }
    await using folder = await temporaryFolder();
    await expectDisk(folder.path);
    await using lmdb = await startOurs(token, ['--store', 'lmdb', '--data', folder.path], bench);
    const { port } = lmdb;
    const loads = await inTurns(
      {
        many: { port, requests: requestsOf('accepted write', token, MANY) },
        one: { port, requests: requestsOf('accepted write', token, 1) },
      },
      9,
      bench,
    );
    const aims = { rate: { atLeast: 5 } };
    yield compared(
      'lmdb, equal: accepted write',
      MANY,
      loads.many,
      'one at a time',
      loads.one,
      aims,
    );
  },
};

/** The options of all but upstream's own, given a folder. */
function others({ endpoints }: Etcd): [name: string, args: (folder: string) => string[]][] {
  const etcd = ['--endpoints', endpoints.join()];
  return (['memory', 'lmdb', 'etcd'] as const).flatMap((store) =>
    (['equal', 'monotonic', 'holder'] as const)
      .filter((fence) => store !== 'memory' || fence !== 'equal')
      .map((fence) => [
        `${store}, ${fence}`,
        (folder) => [
          ...['--store', store, '--fence', fence],
          ...(store === 'lmdb' ? ['--data', folder] : []),
          ...(store === 'etcd' || fence === 'holder' ? etcd : []),
        ],
      ]),
  );
}

type Aims = { rate?: Aim; time?: Aim };
type Aim = NonNullable<Row['against']>['aim'];

const AIMS: Aims = { rate: { atLeast: 0.9 }, time: { atMost: 1.2 } };

/** The rate at many connections, the time of a request at one. */
function compared(
  what: string,
  connections: number,
  ours: Load[],
  rival: string,
  theirs: Load[],
  aims: Aims = {},
): Row {
  const one = connections === 1;
  const [figures, others] = [ours, theirs].map((loads) =>
    loads.map(({ perSecond, p50 }) => (one ? p50 : perSecond)),
  );
  const aim = one ? aims.time : aims.rate;
  return {
    what: one ? `${what}, 1 connection, p50` : `${what}, ${connections} connections`,
    value: median(figures ?? []),
    unit: one ? 'ms' : '/s',
    against: {
      what: rival,
      value: median(others ?? []),
      ratio: ratio(figures ?? [], others ?? []),
      ...(aim && { aim }),
    },
  };
}

function p99(what: string, connections: number, loads: Load[]): Row {
  const where = connections === 1 ? '1 connection' : `${connections} connections`;
  return { what: `${what}, ${where}, p99`, value: median(loads.map(({ p99 }) => p99)), unit: 'ms' };
}
