// The lock of the library and its rivals, each as a user of it would take it. What differs is what they
// hand out: only `mutex` and `lease-lock` have a token that grows with each holder, so only their
// holders can be told apart by a storage. All have the same TTL, and those on Redis, which leave it to the user, renew as often
// as a session does. A lock that runs out runs out on the monotonic clock, but for `redlock`'s own check.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { EtcdLockFailedError, isRecoverableError } from 'etcd3';
import { Redis as Client } from 'ioredis';
import Redlock from 'redlock';
import {
  connect,
  LeaseLock,
  LockConflict,
  LockLost,
  Mutex,
  NotLocked,
  Session,
} from '../../client/concurrency/index.js';

/** Disposing closes its connections and releases nothing. */
export interface Lock extends AsyncDisposable {
  /** Waits until it has the lock. */
  acquire(): Promise<Grant>;
  /** Also of a lock that was lost, or not got: then it must not touch that of another. */
  release(): Promise<void>;
}

export type Grant = {
  /** None where the lock hands out none. */
  token?: bigint;
  /** Names this grant, by what the servers have of it. */
  key?: string;
  /** Aborted when it is known to be lost; its reason has a `reason`. None where it is never told. */
  lost?: AbortSignal;
};

export type LockOptions = {
  /** Of the lock. */
  name: string;
  /** Seconds. */
  ttl: number;
  /** Of etcd. */
  endpoints: readonly string[];
  /** URLs of the redis-servers. */
  redis: readonly string[];
};

export type LockKind = {
  /** One line for the list. */
  readonly about: string;
  /** How many redis-servers it takes; 0: it is on etcd. */
  readonly servers: number;
  /** Whether it hands out a token that only grows. */
  readonly fencing: boolean;
  /** Whether its holder is told of its loss. */
  readonly tells: boolean;
  readonly open: (options: LockOptions) => Promise<Lock>;
};

export const locks = {
  mutex: {
    about: 'that of this package',
    servers: 0,
    fencing: true,
    tells: true,
    open: openMutex,
  },
  'lease-lock': {
    about: 'the LeaseLock of this package',
    servers: 0,
    fencing: true,
    tells: true,
    open: openLeaseLock,
  },
  etcd3: {
    about: "etcd3's own Lock",
    servers: 0,
    fencing: false,
    tells: false,
    open: openEtcd3,
  },
  redis: {
    about: 'SET NX PX on one redis-server, released by compare-and-delete',
    servers: 1,
    fencing: false,
    tells: true,
    open: (options) => openRedis(options, true),
  },
  'redis-del': {
    about: 'as redis, but released by a plain DEL',
    servers: 1,
    fencing: false,
    tells: true,
    open: (options) => openRedis(options, false),
  },
  redlock: {
    about: 'the redlock package on five redis-servers',
    servers: 5,
    fencing: false,
    tells: true,
    open: openRedlock,
  },
} satisfies Record<string, LockKind>;

export type LockName = keyof typeof locks;

/** What the server that a lock is on is called. */
export function serverOf(lock: LockName): 'etcd' | 'redis' {
  return locks[lock].servers > 0 ? 'redis' : 'etcd';
}

/** Milliseconds between two attempts of a lock that cannot wait. */
const POLL = 50;

async function openMutex({ name, ttl, endpoints }: LockOptions): Promise<Lock> {
  const etcd = await connect({ endpoints });
  let session: Session | undefined;
  let mutex: Mutex | undefined;
  return {
    async acquire() {
      const own = await Session.create(etcd, { ttl });
      session = own;
      mutex = new Mutex(own, name);
      await mutex.lock();
      return { token: mutex.token, key: mutex.key, lost: own.signal };
    },
    async release() {
      const own = session;
      try {
        await mutex?.unlock();
      } finally {
        await own?.close();
      }
    },
    async [Symbol.asyncDispose]() {
      etcd.close();
    },
  };
}

async function openLeaseLock({ name, ttl, endpoints }: LockOptions): Promise<Lock> {
  const etcd = await connect({ endpoints });
  const lock = new LeaseLock(etcd, name, { ttl });
  return {
    async acquire() {
      for (;;) {
        try {
          const token = await lock.acquire();
          // It does not tell its key.
          const { kvs } = await etcd.getAll().prefix(`${name}/`).exec();
          const own = kvs.find((kv) => BigInt(kv.create_revision) === token);
          return { token, ...(own && { key: `${own.key}` }), lost: lock.signal };
        } catch (error) {
          if (!(error instanceof LockConflict)) throw error;
          await sleep(POLL);
        }
      }
    },
    async release() {
      await lock.release().catch((error) => {
        if (!(error instanceof LockLost || error instanceof NotLocked)) throw error;
      });
    },
    async [Symbol.asyncDispose]() {
      etcd.close();
    },
  };
}

async function openEtcd3({ name, ttl, endpoints }: LockOptions): Promise<Lock> {
  const etcd = await connect({ endpoints });
  let lock = etcd.lock('');
  return {
    async acquire() {
      for (;;) {
        lock = etcd.lock(`${name}/etcd3`).ttl(ttl);
        try {
          await lock.acquire();
          const lease = BigInt((await lock.leaseId()) ?? 0).toString(16);
          return { key: `${name}/${lease}` };
        } catch (error) {
          // Where etcd did not answer, the lock may be ours and run out: then it is asked for again.
          if (!(error instanceof EtcdLockFailedError || isUnanswered(error))) throw error;
          await sleep(POLL);
        }
      }
    },
    async release() {
      await lock.release().catch((error) => {
        if (!isUnanswered(error)) throw error;
      });
    },
    async [Symbol.asyncDispose]() {
      etcd.close();
    },
  };
}

function isUnanswered(error: unknown): boolean {
  return error instanceof Error && isRecoverableError(error);
}

/** In Lua, which Redis runs as one step: only who still holds the lock renews or deletes its key. */
const OWN = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end";
const RENEW = `${OWN} return redis.call('pexpire', KEYS[1], ARGV[2])`;
const RELEASE = `${OWN} return redis.call('del', KEYS[1])`;

async function openRedis(options: LockOptions, compare: boolean): Promise<Lock> {
  const { name, redis } = options;
  const ttl = options.ttl * 1000;
  const client = open(redis[0] ?? '', ttl);
  let value = '';
  let renewal: Renewal | undefined;
  return {
    async acquire() {
      value = randomUUID();
      let asked = performance.now();
      while ((await client.set(name, value, 'PX', ttl, 'NX').catch(() => null)) !== 'OK') {
        await sleep(POLL);
        asked = performance.now();
      }
      renewal = new Renewal(ttl, asked, async () => {
        return (await client.eval(RENEW, 1, name, value, ttl)) === 1;
      });
      return { key: `${name}/${value}`, lost: renewal.signal };
    },
    async release() {
      renewal?.stop();
      if (compare) await client.eval(RELEASE, 1, name, value);
      else await client.del(name);
    },
    async [Symbol.asyncDispose]() {
      renewal?.stop();
      client.disconnect();
    },
  };
}

async function openRedlock({ name, redis, ...options }: LockOptions): Promise<Lock> {
  const ttl = options.ttl * 1000;
  const clients = redis.map((url) => open(url, ttl));
  // ioredis takes the arrays that redlock gives it, and its types do not say so.
  const servers = clients as unknown as Redlock.CompatibleRedisClient[];
  const waiting = new Redlock(servers, { retryCount: -1, retryDelay: POLL, retryJitter: POLL / 2 });
  const once = new Redlock(servers, { retryCount: 0 });
  // Of a server that is out of reach; the others decide.
  for (const redlock of [waiting, once]) redlock.on('clientError', () => {});
  let lock: Redlock.Lock | undefined;
  let renewal: Renewal | undefined;
  return {
    async acquire() {
      const held = await waiting.acquire(name, ttl);
      lock = held;
      // It tells by its own, wall clock when the lock runs out; here it is only late by one answer.
      renewal = new Renewal(ttl, performance.now(), () =>
        Promise.resolve(once.extend(held, ttl)).then(
          () => true,
          // It has given the lock up by then.
          () => false,
        ),
      );
      return { key: `${name}/${held.value}`, lost: renewal.signal };
    },
    async release() {
      renewal?.stop();
      // It rejects where most servers do not have the lock any more.
      if (lock) await Promise.resolve(once.release(lock)).catch(() => {});
    },
    async [Symbol.asyncDispose]() {
      renewal?.stop();
      for (const client of clients) client.disconnect();
    },
  };
}

/** A client that gives up a command in time for another renewal. */
function open(url: string, ttl: number): Client {
  const client = new Client(url, {
    commandTimeout: ttl / 6,
    maxRetriesPerRequest: 0,
    retryStrategy: () => POLL,
  });
  client.on('error', () => {});
  return client;
}

/** Renews a lock each third of its TTL, and tells when it is gone or may have run out. */
class Renewal {
  readonly #controller = new AbortController();
  readonly #ttl: number;
  readonly #renew: () => Promise<boolean>;
  #end: number;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  /** `renew` tells whether the lock is still ours, and rejects where it cannot tell. */
  constructor(ttl: number, asked: number, renew: () => Promise<boolean>) {
    this.#ttl = ttl;
    this.#renew = renew;
    this.#end = asked + ttl;
    this.#schedule();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #schedule(): void {
    const left = Math.max(0, this.#end - performance.now());
    this.#timer = setTimeout(() => this.#next(), Math.min(this.#ttl / 3, left));
  }

  async #next(): Promise<void> {
    const asked = performance.now();
    const ours = await this.#renew().catch(() => undefined);
    if (this.#stopped) return;
    if (ours) this.#end = asked + this.#ttl;
    if (ours === false) this.#controller.abort({ reason: 'revoked' });
    else if (performance.now() >= this.#end) this.#controller.abort({ reason: 'expired' });
    else this.#schedule();
  }
}
