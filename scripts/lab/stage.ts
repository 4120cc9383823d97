// Where a run of the lab takes place: a private etcd, a storage with its fence, workers on their own
// processes, proxies between them, and the history that they all write together.

import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect } from '../../client/concurrency/index.js';
import { type Etcd, freePorts, type Member, startEtcd } from '../lib/etcd.js';
import { temporaryFolder } from '../lib/folder.js';
import { Lookout } from '../lib/lookout.js';
import { Program } from '../lib/program.js';
import { type FaultProxy, startProxy } from '../lib/proxy.js';
import { Actor } from './actor.js';
import { Clock } from './clock.js';
import { is, type Of } from './decisions.js';
import { decodeEvent, type Event, isOf, now } from './history.js';
import { type LockName, locks } from './locks.js';
import { type Redis, startRedis } from './redis.js';
import type { Fence, StorageOptions, StoreKind } from './storage.js';
import type { WorkerOptions } from './worker.js';

export type StageOptions = {
  fence: Fence;
  store: StoreKind;
  /** Default `mutex`, the one of this package. */
  lock?: LockName;
  /** Default 1. */
  members?: 1 | 3;
  /** The workers' wall clocks can be set, by libfaketime. Default: not. */
  clock?: boolean;
  /** Ends all waiting with its reason. */
  signal?: AbortSignal;
};

/** Seconds: the least that etcd grants with its default settings. */
export const TTL = 2;
const LOCK = '/lab';
/** The counter in storage. */
export const KEY = 'counter';
/** Milliseconds until something that has to come must have come. */
const PATIENCE = 30_000;

/** A member of etcd, its ID, and whether it leads the others. */
export type MemberStatus = {
  readonly member: Member;
  readonly id: bigint;
  readonly leads: boolean;
};

export class Stage implements AsyncDisposable {
  readonly history: Event[] = [];
  readonly #options: StageOptions;
  readonly #start = now();
  readonly #lookout = new Lookout();
  readonly #etcd: Etcd;
  readonly #owned: AsyncDisposable[] = [];
  #redis: Redis | undefined;
  #storage: Program | undefined;
  #url = '';
  /** The data of the lmdb store, and what the workers' clocks are off by. */
  #folder = '';

  private constructor(options: StageOptions, etcd: Etcd) {
    this.#options = options;
    this.#etcd = this.#own(etcd);
  }

  static async open(options: StageOptions): Promise<Stage> {
    const stage = new Stage(options, await startEtcd({ members: options.members ?? 1 }));
    try {
      await stage.#open();
      return stage;
    } catch (error) {
      await stage[Symbol.asyncDispose]();
      throw error;
    }
  }

  get lock(): LockName {
    return this.#options.lock ?? 'mutex';
  }

  /** Where the lock is. */
  get servers(): readonly string[] {
    return this.#redis?.endpoints ?? this.#etcd.endpoints;
  }

  /**
   * A worker, reached through proxies of its own: to where its lock is, and to `storage`.
   *
   * @param known the servers that it knows; default: all that are there
   */
  async worker(name: string, known = this.servers): Promise<Actor> {
    const servers = await Promise.all(known.map((endpoint) => this.#proxy(endpoint)));
    const endpoints = servers.map((proxy) => proxy.endpoint);
    const storage = await this.#proxy(this.#url);
    const options: WorkerOptions = {
      name,
      lock: this.lock,
      options: {
        name: LOCK,
        ttl: TTL,
        endpoints,
        redis: endpoints.map((endpoint) => endpoint.replace('http:', 'redis:')),
      },
      storage: storage.endpoint,
      key: KEY,
    };
    const clock = this.#options.clock ? new Clock(join(this.#folder, `clock-${name}`)) : undefined;
    const program = this.#run('worker.ts', options, clock?.env);
    return new Actor(this, name, program, clock, { servers, storage });
  }

  async #proxy(target: string): Promise<FaultProxy> {
    return this.#own(await startProxy(target));
  }

  /** Ends storage, as a crash does or, with `gently`, as SIGTERM; starts it again in the same place. */
  async restartStorage({ gently = false } = {}): Promise<void> {
    const storage = this.#storage;
    this.fault('storage', 'restarted', false);
    if (gently) {
      storage?.signal('SIGTERM');
      const end = sleep(PATIENCE, undefined, { ref: false });
      const exit = await Promise.race([storage?.exited, end]);
      if (exit?.code !== 0)
        throw new Error(`expected storage to end by itself: ${storage?.stderr}`);
    }
    await storage?.[Symbol.asyncDispose]();
    await this.#startStorage(Number(new URL(this.#url).port));
  }

  /** The members of etcd, those first whose leases have lower IDs. */
  async members(): Promise<MemberStatus[]> {
    // In JSON the IDs would be numbers, and rounded.
    const args = ['endpoint', 'status', '--cluster', '--write-out', 'fields'];
    const found = (await this.#etcd.ctl(...args)).matchAll(
      /^"MemberID" : (\d+)[\s\S]*?^"Leader" : (\d+)[\s\S]*?^"Endpoint" : "(.*)"$/gm,
    );
    const all = [...found].map(([, id = '', leader, endpoint]) => {
      const member = this.#etcd.members.find((one) => one.endpoint === endpoint);
      if (!member) throw new Error(`expected a member of etcd, got ${endpoint}`);
      return { member, id: BigInt(id), leads: id === leader };
    });
    // A lease's ID begins with the last 15 bits of the ID of the member that granted it.
    const rank = ({ id }: MemberStatus) => Number(id & 0x7fffn);
    return all.toSorted((a, b) => rank(a) - rank(b));
  }

  /** Makes that member lead the others. */
  async lead({ id, leads }: MemberStatus): Promise<void> {
    if (!leads) await this.#etcd.ctl('move-leader', id.toString(16));
  }

  /** Kills the member of etcd that leads the others; resolves with how to start it again. */
  async killLeader(): Promise<() => Promise<void>> {
    const { member } = await this.#leader();
    this.fault(member.name, 'killed', false);
    await member.kill();
    return async () => {
      await member.restart();
      this.fault(member.name, 'killed', true);
    };
  }

  /** Freezes it; resolves with how to let it go on. */
  async freezeLeader(): Promise<() => void> {
    const { member } = await this.#leader();
    this.fault(member.name, 'frozen', false);
    member.pause();
    return () => {
      this.fault(member.name, 'frozen', true);
      member.resume();
    };
  }

  async #leader(): Promise<MemberStatus> {
    const leader = (await this.members()).find(({ leads }) => leads);
    if (!leader) throw new Error('expected a member to be the leader, found none');
    return leader;
  }

  /**
   * Gives the server whose vote makes the majority a replica that hears of nothing from now on: its
   * number, the servers as they are after the failover, and the failover itself.
   */
  async replica(): Promise<{ nth: number; endpoints: string[]; failover: () => Promise<void> }> {
    const redis = this.#redis;
    if (!redis) throw new Error('expected a lock on redis');
    const { endpoints } = redis;
    const nth = Math.floor(endpoints.length / 2);
    const replica = await redis.replica(nth);
    return {
      nth,
      endpoints: endpoints.with(nth, replica.endpoint),
      failover: async () => {
        this.fault(`redis${nth + 1}`, 'killed', false);
        await replica.promote();
      },
    };
  }

  /** Takes the lock from its holder, without asking it. */
  async takeAway(key: string): Promise<void> {
    const lease = key.split('/').at(-1) ?? '';
    if (this.#redis) await this.#redis.forget(LOCK);
    else await this.#etcd.ctl('lease', 'revoke', lease);
  }

  /** Whether nobody has the lock, by where it is, at this moment. */
  async isFree(): Promise<boolean> {
    if (this.#redis) return (await this.#redis.holder(LOCK)) === undefined;
    return (await this.#etcd.ctl('get', '--prefix', '--keys-only', `${LOCK}/`)) === '';
  }

  /**
   * Resolves when nothing is missing in the history: the decision of each request that was answered,
   * and what each worker is told that etcd took the lock from.
   */
  async complete(): Promise<void> {
    const count = (what: Event['what']) => this.history.filter((one) => one.what === what).length;
    await this.#until(
      () => count('decided') >= count('told') || undefined,
      'storage to tell its decisions',
    );
    for (const held of this.history.filter(is('holds'))) {
      const { who } = held;
      await this.placeOf(held);
      const about = this.history.filter((event) => 'who' in event && event.who === who);
      const killed = about.some((event) => event.what === 'fault' && event.fault === 'killed');
      const released = about.some(is('releases'));
      const taken = this.history.filter(is('left')).some((event) => isOf(held, event));
      if (killed || released || !taken || !locks[this.lock].tells) continue;
      await this.until(
        'lost',
        (event) => event.who === who,
        `${who} to learn that it lost the lock`,
      );
    }
  }

  /** Resolves with the place in the queue that a grant rests on, once the servers have told of it. */
  placeOf(held: Of<'holds'>): Promise<Of<'queued'>> {
    return this.until(
      'queued',
      (event) => isOf(held, event),
      `the servers to tell that ${held.who} holds the lock`,
    );
  }

  /** Adds what the stage itself does. */
  fault(who: string, fault: string, over: boolean): void {
    this.#add({ at: now(), who, what: 'fault', fault, over });
  }

  /** Resolves with the first event of a sort, from index `from` of the history on, that matches. */
  until<What extends Event['what']>(
    what: What,
    matches: (event: Of<What>) => boolean,
    wanted: string,
    from = 0,
  ): Promise<Of<What>> {
    return this.#until(() => this.history.slice(from).filter(is(what)).find(matches), wanted);
  }

  #until<T>(look: () => T | undefined, wanted: string): Promise<T> {
    const late = () => {
      const programs = this.#owned.filter((one) => one instanceof Program);
      const said = programs.map(({ stderr }) => stderr).join('');
      return new Error(`expected ${wanted} within ${PATIENCE / 1000} s\n${said}`);
    };
    return this.#lookout.until(look, PATIENCE, late, this.#options.signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const owned of this.#owned.reverse()) await owned[Symbol.asyncDispose]();
  }

  #own<T extends AsyncDisposable>(owned: T): T {
    this.#owned.push(owned);
    return owned;
  }

  async #open(): Promise<void> {
    this.#folder = this.#own(await temporaryFolder()).path;
    await this.#watchQueue();
    const { servers } = locks[this.lock];
    if (servers > 0) await this.#startRedis(servers);
    // Not one that the system would also give to those who connect: storage comes back to it.
    const [port = 0] = await freePorts(1);
    await this.#startStorage(port);
  }

  async #startStorage(port: number): Promise<void> {
    const { fence, store } = this.#options;
    const { endpoints } = this.#etcd;
    const place = { endpoints, lock: LOCK, data: this.#folder, port };
    const options: StorageOptions = { fence, store, ...place };
    this.#storage = this.#run('storage.ts', options);
    this.#url = / on (\S+)$/.exec(await this.#storage.line('listening on'))?.[1] ?? '';
  }

  /** All members are asked, since one that is frozen tells nothing: what is new counts. */
  async #watchQueue(): Promise<void> {
    const places = new Map<string, { key: string; token: bigint }>();
    const seen = new Set<string>();
    const isNew = ({ key, mod_revision }: { key: Buffer; mod_revision: string }) =>
      seen.size < seen.add(`${mod_revision} ${key}`).size;
    for (const endpoint of this.#etcd.endpoints) {
      const client = await connect({ endpoints: [endpoint] });
      this.#own({ [Symbol.asyncDispose]: async () => client.close() });
      const watcher = await client.watch().prefix(`${LOCK}/`).create();
      watcher.on('put', (kv) => {
        if (!isNew(kv)) return;
        // Named by its lease: not all locks have a key for each holder.
        const key = `${LOCK}/${BigInt(kv.lease).toString(16)}`;
        const place = { key, token: BigInt(kv.create_revision) };
        places.set(kv.key.toString(), place);
        this.#add({ at: now(), what: 'queued', ...place });
      });
      watcher.on('delete', (kv) => {
        const place = places.get(kv.key.toString());
        if (!place || !isNew(kv)) return;
        this.#add({ at: now(), what: 'left', ...place, revision: BigInt(kv.mod_revision) });
      });
    }
  }

  /** Redis has no queue and no revision; what its servers show is counted in their place. */
  async #startRedis(servers: number): Promise<void> {
    this.#redis = this.#own(await startRedis(servers));
    let count = 0n;
    let place: { key: string; token: bigint } | undefined;
    await this.#redis.watch(LOCK, (holder) => {
      if (place) this.#add({ at: now(), what: 'left', ...place, revision: ++count });
      place = holder === undefined ? undefined : { key: `${LOCK}/${holder}`, token: ++count };
      if (place) this.#add({ at: now(), what: 'queued', ...place });
    });
  }

  #run(script: string, options: object, env: Record<string, string> = {}): Program {
    const path = fileURLToPath(new URL(script, import.meta.url));
    const args = ['--import', 'tsx', path, JSON.stringify(options)];
    const onLine = (line: string) => {
      if (line.startsWith('{')) this.#add(decodeEvent(line));
    };
    return this.#own(Program.start(process.execPath, args, { env, onLine }));
  }

  #add(event: Event): void {
    this.history.push({ ...event, at: event.at - this.#start });
    this.#lookout.notify();
  }
}
