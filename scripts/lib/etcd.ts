// A private etcd of one or three members on ports and a data folder of its own, with the etcd
// and etcdctl that scripts/setup.sh found (3.4 or newer). Heartbeat and election time-outs stay
// at etcd's defaults: they decide how long the shortest lease is (asking for 1 s grants 2 s).

import { readFileSync } from 'node:fs';
import * as http from 'node:http';
import * as https from 'node:https';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Folder, temporaryFolder } from './folder.js';
import { type Exit, Program } from './program.js';

/** Path of the etcdctl binary. */
export const etcdctl = binary('etcdctl');

export interface EtcdOptions {
  /** Default 1. */
  members?: 1 | 3;
  /** Client port of the first member. Default: free ports for all. */
  clientPort?: number;
  /** A folder that stays the caller's. Default: a temporary one, removed by `stop`. */
  dataDir?: string;
  /** Serve clients over TLS only, and only those with a certificate of `ca`. */
  tls?: TlsFiles;
  /** Further flags for every member. */
  args?: string[];
}

/** PEM files; the certificate is good for a server at 127.0.0.1 and for a client. */
export interface TlsFiles {
  ca: string;
  cert: string;
  key: string;
}

export interface Etcd extends AsyncDisposable {
  /** One client URL per member, such as `http://127.0.0.1:23456`. */
  readonly endpoints: string[];
  readonly members: readonly Member[];
  /** Runs etcdctl against `endpoints`: its standard output; rejects with its standard error. */
  ctl(...args: string[]): Promise<string>;
  /** Kills all members and removes the temporary data folder. */
  stop(): Promise<void>;
}

/** Starts an etcd; resolves when every member answers a linearizable read. */
export async function startEtcd(options: EtcdOptions = {}): Promise<Etcd> {
  const givenPlace = options.clientPort !== undefined || options.dataDir !== undefined;
  for (let attemptsLeft = givenPlace ? 0 : 4; ; attemptsLeft--) {
    try {
      return await tryToStart(options);
    } catch (error) {
      // Another process may have taken a port after it was found free.
      if (!(error instanceof PortTakenError) || attemptsLeft === 0) throw error;
    }
  }
}

/** A port to listen on is in use by another process. */
export class PortTakenError extends Error {
  override readonly name = 'PortTakenError';
}

/** One process of it, which can be ended and started again. */
export class Member {
  #program: Program;

  constructor(
    readonly name: string,
    readonly endpoint: string,
    private readonly args: string[],
    private readonly tls: TlsFiles | undefined,
  ) {
    this.#program = this.#start();
  }

  /** Of the process running now or last. */
  get pid(): number {
    return this.#program.pid;
  }

  /** Resolves when that process has ended. */
  get exited(): Promise<Exit> {
    return this.#program.exited;
  }

  /** Stops the process where it is (SIGSTOP): its connections stay open and mute. */
  pause(): void {
    this.#program.signal('SIGSTOP');
  }

  resume(): void {
    this.#program.signal('SIGCONT');
  }

  /** Ends the process by SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    await this.#program[Symbol.asyncDispose]();
  }

  /**
   * Starts it again, killing it first if need be, on the same ports and data. Resolves when it
   * answers a linearizable read: with a majority down, restart the members together.
   */
  async restart(): Promise<void> {
    await this.kill();
    this.#program = this.#start();
    await this.serving();
  }

  /** Resolves when it answers a linearizable read. */
  async serving(): Promise<void> {
    const deadline = performance.now() + START_TIMEOUT_MS;
    // Its own line first: on a port that another etcd took, the other one would answer.
    await this.#program
      .line('ready to serve client requests', { timeout: START_TIMEOUT_MS })
      .catch((error: Error) => {
        throw this.#explained(error);
      });
    while (!(await isHealthy(this.endpoint, this.tls))) {
      if (performance.now() > deadline) {
        throw new Error(`etcd on ${this.endpoint} has no leader after ${START_TIMEOUT_MS} ms`);
      }
      await sleep(20);
    }
  }

  #start(): Program {
    // Before 3.5 etcd starts on arm64 only when told so.
    return Program.start(binary('etcd'), this.args, {
      env: { ETCD_UNSUPPORTED_ARCH: process.arch },
    });
  }

  #explained(error: Error): Error {
    return this.#program.stderr.includes('address already in use')
      ? new PortTakenError(`etcd cannot listen on ${this.endpoint}: the port is in use`)
      : error;
  }
}

const START_TIMEOUT_MS = 20_000;

async function tryToStart(options: EtcdOptions): Promise<Etcd> {
  const folder = options.dataDir === undefined ? await temporaryFolder() : staying(options.dataDir);
  const names = options.members === 3 ? ['etcd1', 'etcd2', 'etcd3'] : ['etcd1'];
  const ports = await freePorts(names.length * 2);
  const places = names.map((name, i) => ({
    name,
    client: `${options.tls ? 'https' : 'http'}://127.0.0.1:${(i === 0 ? options.clientPort : undefined) ?? ports[2 * i]}`,
    peer: `http://127.0.0.1:${ports[2 * i + 1]}`,
  }));
  const cluster = places.map(({ name, peer }) => `${name}=${peer}`).join(',');
  const members = places.map(({ name, client, peer }) => {
    const flags = {
      '--name': name,
      '--data-dir': join(folder.path, name),
      '--listen-client-urls': client,
      '--advertise-client-urls': client,
      '--listen-peer-urls': peer,
      '--initial-advertise-peer-urls': peer,
      '--initial-cluster': cluster,
    };
    const own = [...Object.entries(flags).flat(), ...tlsFlags(options.tls)];
    return new Member(name, client, [...own, ...(options.args ?? [])], options.tls);
  });
  const stop = async (): Promise<void> => {
    await Promise.all(members.map((member) => member.kill()));
    await folder[Symbol.asyncDispose]();
  };
  try {
    await Promise.all(members.map((member) => member.serving()));
  } catch (error) {
    await stop();
    throw error;
  }
  const endpoints = places.map(({ client }) => client);
  return {
    endpoints,
    members,
    ctl: (...args) =>
      runEtcdctl(['--endpoints', endpoints.join(','), ...tlsOptions(options.tls), ...args]),
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

function staying(path: string): Folder {
  return { path, async [Symbol.asyncDispose]() {} };
}

/** Runs etcdctl: its standard output; rejects with its standard error. */
export async function runEtcdctl(args: string[]): Promise<string> {
  await using program = Program.start(etcdctl, args);
  program.end();
  const { code } = await program.exited;
  if (code !== 0) throw new Error(`etcdctl ${args.join(' ')}: ${program.stderr.trim()}`);
  return program.stdout;
}

function tlsFlags(tls: TlsFiles | undefined): string[] {
  if (!tls) return [];
  const own = ['--cert-file', tls.cert, '--key-file', tls.key];
  return [...own, '--client-cert-auth', '--trusted-ca-file', tls.ca];
}

function tlsOptions(tls: TlsFiles | undefined): string[] {
  return tls ? ['--cacert', tls.ca, '--cert', tls.cert, '--key', tls.key] : [];
}

/** Asks /health, which etcd answers from a linearizable read. */
function isHealthy(endpoint: string, tls: TlsFiles | undefined): Promise<boolean> {
  const files = tls && {
    ca: readFileSync(tls.ca),
    cert: readFileSync(tls.cert),
    key: readFileSync(tls.key),
  };
  return new Promise((resolve) => {
    const options = { agent: false, timeout: 1000, ...files };
    const request = (tls ? https : http).get(`${endpoint}/health`, options, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.on('timeout', () => request.destroy());
    request.on('error', () => resolve(false));
  });
}

/**
 * Ports of 127.0.0.1 that are free now. They lie below the range that systems take the ports of
 * outgoing connections from: there, a client's connection could take the port of a member while
 * the member is down, even one trying to reach that very member.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>();
  while (ports.size < count) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    if (await isFree(port)) ports.add(port);
  }
  return [...ports];
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.on('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

function binary(name: string): string {
  return fileURLToPath(new URL(`../../.cache/bin/${name}`, import.meta.url));
}
