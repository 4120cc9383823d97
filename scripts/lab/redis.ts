// Private redis-servers on ports and a folder of their own, which keep nothing on disk, and who holds
// a lock by them: the value that a majority of them has, for one server as for the five of Redlock.
// A server can have a replica, cut off and promoted in its place, which is what a failover comes to.

import { spawnSync } from 'node:child_process';
import { Redis as Client } from 'ioredis';
import { freePorts } from '../lib/etcd.js';
import { type Folder, temporaryFolder } from '../lib/folder.js';
import { Program } from '../lib/program.js';
import { startProxy } from '../lib/proxy.js';

export interface Redis extends AsyncDisposable {
  /** One URL per server, such as `redis://127.0.0.1:23456`. */
  readonly endpoints: readonly string[];
  /** The value that most of the servers have for the key. */
  holder(key: string): Promise<string | undefined>;
  /** Calls `changed` with the holder whenever it has become another. Of one key only. */
  watch(key: string, changed: (holder: string | undefined) => void): Promise<void>;
  /** Deletes the key on all servers. */
  forget(key: string): Promise<void>;
  /** A replica of the server, in sync, that hears nothing of it from now on. */
  replica(nth: number): Promise<Replica>;
}

export interface Replica {
  readonly endpoint: string;
  /** Kills the server and promotes the replica in its place. */
  promote(): Promise<void>;
}

/** Whether there is a redis-server to start. */
export function hasRedis(): boolean {
  return spawnSync('redis-server', ['--version']).status === 0;
}

/** Starts so many servers; resolves when all answer. */
export async function startRedis(count: number): Promise<Redis> {
  const redis = new Servers();
  try {
    await redis.start(count);
    return redis;
  } catch (error) {
    await redis[Symbol.asyncDispose]();
    throw error;
  }
}

class Servers implements Redis {
  readonly #owned: (() => Promise<unknown>)[] = [];
  #servers: Server[] = [];
  #watched = { key: '', holder: undefined as string | undefined, look: async () => {} };

  get endpoints(): string[] {
    return this.#servers.map(({ endpoint }) => endpoint);
  }

  async start(count: number): Promise<void> {
    for (let i = 0; i < count; i++) this.#servers.push(await this.#own(Server.start()));
  }

  async holder(key: string): Promise<string | undefined> {
    const values = await Promise.all(this.#servers.map((server) => server.get(key)));
    return values.find(
      (value) =>
        value !== undefined && values.filter((other) => other === value).length > values.length / 2,
    );
  }

  async watch(key: string, changed: (holder: string | undefined) => void): Promise<void> {
    // One look after the other: the answers of an earlier one may come later.
    let last: Promise<void> = Promise.resolve();
    const look = async () => {
      const holder = await this.holder(key);
      if (holder === this.#watched.holder) return;
      this.#watched.holder = holder;
      changed(holder);
    };
    this.#watched = { key, holder: undefined, look: () => (last = last.then(look)) };
    for (const server of this.#servers) await server.subscribe(key, this.#watched.look);
  }

  async forget(key: string): Promise<void> {
    await Promise.all(this.#servers.map(({ client }) => client.del(key)));
  }

  async replica(nth: number): Promise<Replica> {
    const server = this.#servers[nth];
    if (!server) throw new Error(`expected a server, got number ${nth}`);
    const [link, replica] = [
      await this.#own(startProxy(server.endpoint)),
      await this.#own(Server.start()),
    ];
    await replica.follow(link.endpoint);
    link.swallow();
    const { key, look } = this.#watched;
    await replica.subscribe(key, look);
    return {
      endpoint: replica.endpoint,
      promote: async () => {
        await server[Symbol.asyncDispose]();
        await replica.client.replicaof('NO', 'ONE');
        this.#servers = this.#servers.with(nth, replica);
        await look();
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const dispose of this.#owned.reverse()) await dispose();
  }

  async #own<T extends AsyncDisposable>(starting: Promise<T>): Promise<T> {
    const owned = await starting;
    this.#owned.push(async () => owned[Symbol.asyncDispose]());
    return owned;
  }
}

class Server implements AsyncDisposable {
  static async start(): Promise<Server> {
    const folder = await temporaryFolder();
    try {
      const [port = 0] = await freePorts(1);
      const server = new Server(port, folder);
      await server.#ready();
      return server;
    } catch (error) {
      await folder[Symbol.asyncDispose]();
      throw error;
    }
  }

  readonly endpoint: string;
  /** For commands. It gives up with the server. */
  readonly client: Client;
  readonly #program: Program;
  readonly #clients: Client[] = [];

  private constructor(
    private readonly port: number,
    private readonly folder: Folder,
  ) {
    this.endpoint = `redis://127.0.0.1:${port}`;
    this.#program = Program.start(binary(), [
      ...['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder.path],
      // Nothing on disk: it is the common way to run one, and what a lock in it is worth.
      ...['--save', '', '--appendonly', 'no'],
      // Each change of a key is published; a replica is served at once.
      ...['--notify-keyspace-events', 'KA', '--repl-diskless-sync-delay', '0'],
    ]);
    this.client = this.#connect();
  }

  /** Nothing also where the server is gone. */
  async get(key: string): Promise<string | undefined> {
    return (await this.client.get(key).catch(() => null)) ?? undefined;
  }

  async subscribe(key: string, changed: () => void): Promise<void> {
    const client = this.#connect();
    client.on('message', changed);
    await client.subscribe(`__keyspace@0__:${key}`);
  }

  /** Becomes the replica of another; resolves when it has all that the other has. */
  async follow(endpoint: string): Promise<void> {
    const { hostname, port } = new URL(endpoint);
    await this.client.replicaof(hostname, port);
    await this.#program.line('sync: Finished with success');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) client.disconnect();
    await this.#program[Symbol.asyncDispose]();
    await this.folder[Symbol.asyncDispose]();
  }

  async #ready(): Promise<void> {
    try {
      await this.#program.line('Ready to accept connections');
      await this.client.connect();
    } catch (error) {
      await this[Symbol.asyncDispose]();
      throw error;
    }
  }

  #connect(): Client {
    const client = new Client(this.port, '127.0.0.1', {
      lazyConnect: true,
      retryStrategy: () => null,
    });
    client.on('error', () => {});
    this.#clients.push(client);
    return client;
  }
}

/** Throws, with what to do, where there is none. */
function binary(): string {
  if (hasRedis()) return 'redis-server';
  throw new Error(
    'there is no redis-server on PATH; Debian and Ubuntu have it in the package redis-server (its service need not run)',
  );
}
