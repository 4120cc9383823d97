// What tests of locks have in common: a peer is one client of etcd as a process of its own would
// be one, with a connection and sessions; and what somebody sees who looks into etcd itself.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Etcd3 } from 'etcd3';
import { type ConnectOptions, connect } from '../../client/concurrency/connect.js';
import { Mutex } from '../../client/concurrency/mutex.js';
import { Session, type SessionOptions } from '../../client/concurrency/session.js';
import { Program } from './program.js';

export class Peer implements AsyncDisposable {
  static async connect(endpoints: readonly string[], options: ConnectOptions = {}): Promise<Peer> {
    return new Peer(await connect({ ...options, endpoints }));
  }

  readonly etcd: Etcd3;
  readonly #sessions: Session[] = [];

  private constructor(etcd: Etcd3) {
    this.etcd = etcd;
  }

  /** A session that ends with this peer. `ttl`: by default too long to matter. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const session = await Session.create(this.etcd, { ttl: 60, ...options });
    this.#sessions.push(session);
    return session;
  }

  /** A mutex in a session of its own. */
  async mutex(name: string, options?: SessionOptions): Promise<Mutex> {
    return new Mutex(await this.session(options), name);
  }

  /** Whether etcd knows the lease, without renewing it. */
  async leaseLives({ leaseId }: Session): Promise<boolean> {
    const { TTL } = await this.etcd.leaseClient.leaseTimeToLive({ ID: String(leaseId) });
    return Number(TTL) > 0;
  }

  revoke({ leaseId }: Session): Promise<unknown> {
    return this.etcd.leaseClient.leaseRevoke({ ID: String(leaseId) });
  }

  /** The keys in the queue for a lock, oldest first. */
  async queue(name: string): Promise<Entry[]> {
    const { kvs } = await this.etcd.getAll().prefix(`${name}/`).sort('Create', 'Ascend').exec();
    return kvs.map((kv) => ({
      key: kv.key.toString(),
      value: kv.value.toString(),
      revision: BigInt(kv.create_revision),
      lease: BigInt(kv.lease),
    }));
  }

  /** Resolves when that many keys are in the queue for a lock. */
  async untilQueued(name: string, count: number): Promise<void> {
    while ((await this.queue(name)).length !== count) await sleep(5);
  }

  /** etcd's revision: one more for every change of any key. */
  async revision(): Promise<bigint> {
    const { header } = await this.etcd.kv.range({ key: Buffer.from('\0') });
    return BigInt(header.revision);
  }

  /** Abandons its sessions, whose leases run out, and closes the connection. Never waits for etcd. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#sessions.map((session) => session.orphan()));
    this.etcd.close();
  }
}

/**
 * A peer in a process of its own: runs a script, in which `lib` is the package and `endpoints` are
 * these. It has to end by itself.
 */
export function startPeer(endpoints: readonly string[], script: string): Program {
  const source = new URL('../../client/concurrency/index.ts', import.meta.url).href;
  const head = `import * as lib from ${JSON.stringify(source)};
    const endpoints = ${JSON.stringify(endpoints)};`;
  const options = ['--import', 'tsx', '--input-type', 'module', '--eval'];
  return Program.start(process.execPath, [...options, head + script]);
}

export interface Entry {
  key: string;
  value: string;
  /** The create revision. */
  revision: bigint;
  lease: bigint;
}
