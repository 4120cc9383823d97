// The flow of `client <1|2>`, ported from etcd's contrib/lock/client/client.go, texts to the letter.
// Different on purpose: it releases the lock and revokes the lease on every way out that it
// controls, where upstream leaves both to expire after a fatal error. What upstream does not have are
// other tokens than the lease ID, and a client 1 that blocks itself.

import type { Etcd3 } from 'etcd3';
import { hex } from '../storage/protocol.js';
import {
  ConcurrencyError,
  type ConnectOptions,
  connect,
  Mutex,
  Session,
} from './concurrency/index.js';
import { Refused, type Target, write } from './storage-client.js';

/** 1 stops before the write and waits for a key; 2 goes straight on. */
export type Mode = 1 | 2;

export interface Options {
  /** How to reach etcd. */
  etcd: ConnectOptions;
  storage: Target;
  /**
   * What to write with: the lease ID, as upstream, or the create revision of the lock's key, which
   * grows from holder to holder.
   */
  token: 'lease' | 'revision';
  /** Seconds. */
  ttl: number;
  /** Name of the lock. */
  lock: string;
  /** Key of the record to write. */
  record: string;
  /** Seconds for which client 1 blocks its event loop in place of waiting for a key. */
  block?: number;
}

/** What the flow needs of the process it runs in. */
export interface Surroundings {
  log(line: string): void;
  keyPress(signal: AbortSignal): Promise<void>;
  /** Aborted when the process is told to end. */
  signal: AbortSignal;
}

/**
 * Runs the client to its end.
 *
 * @returns whether it went as the demonstration expects; everything that did not has been logged
 * @throws the signal's reason when told to end; the lock has been released by then
 */
export async function run(mode: Mode, options: Options, around: Surroundings): Promise<boolean> {
  const { log, signal } = around;
  try {
    log(`client ${mode} starts`);
    const etcd = await reach({ ...options.etcd, signal });
    try {
      await holdSession(etcd, mode, options, around);
    } finally {
      etcd.close();
    }
    return true;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof Fatal)) throw error;
    log(error.message);
    return false;
  }
}

async function reach(options: ConnectOptions): Promise<Etcd3> {
  try {
    return await connect(options);
  } catch (error) {
    const reached = error instanceof ConcurrencyError;
    throw new Fatal(reached ? 'failed to reach etcd' : 'failed to create an etcd client', error);
  }
}

async function holdSession(
  etcd: Etcd3,
  mode: Mode,
  options: Options,
  around: Surroundings,
): Promise<void> {
  const { log, signal } = around;
  const session = await fatal(
    'failed to create a session',
    Session.create(etcd, { ttl: options.ttl, signal }),
  );
  try {
    log('created etcd client and session');
    const mutex = new Mutex(session, options.lock);
    await fatal('failed to acquire lock', mutex.lock({ signal }));
    try {
      await writeWithLock(mutex, mode, options, around);
    } finally {
      await leave(mutex.unlock());
    }
  } finally {
    await leave(session.close());
  }
}

async function writeWithLock(
  { session: { leaseId }, token: revision }: Mutex,
  mode: Mode,
  options: Options,
  { log, keyPress, signal }: Surroundings,
): Promise<void> {
  const [version, using, old] =
    options.token === 'lease'
      ? [leaseId, `lease ${hex(leaseId)}`, 'lease version']
      : [revision, `token ${revision}`, 'token'];
  if (options.token === 'lease') log(`acquired lock, version: ${hex(version)}`);
  else log(`acquired lock, token: ${version}`);
  if (mode === 1 && options.block !== undefined) {
    log(`blocking the event loop for ${options.block} s: nothing renews the lease meanwhile`);
    block(options.block);
    log('resuming client 1');
  } else if (mode === 1) {
    log(
      `please manually revoke the lease using 'etcdctl lease revoke ${hex(leaseId)}' or wait for it to expire, then start executing client 2 and hit any key...`,
    );
    await keyPress(signal);
    log('resuming client 1');
  } else {
    log('this is client 2, continuing');
  }
  try {
    const value = `value from client ${mode}`;
    await write(options.storage, { key: options.record, value, version }, signal);
    log(`successfully write a key to storage using ${using}`);
  } catch (error) {
    if (!(error instanceof Refused)) throw new Fatal(undefined, error);
    if (mode !== 1) throw new Fatal('unexpected fail to write to storage', error);
    log(`expected fail to write to storage with old ${old}: ${error.message}`);
  }
}

/** Stops the world, as garbage collection or a long computation does. */
function block(seconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);
}

/** What upstream ends the program for: the line it logs then. */
class Fatal extends Error {
  override readonly name = 'Fatal';
  readonly code = 'FATAL';
  constructor(what: string | undefined, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(what ? `${what}: ${why}` : why, { cause });
  }
}

async function fatal<T>(what: string, step: Promise<T>): Promise<T> {
  try {
    return await step;
  } catch (error) {
    throw new Fatal(what, error);
  }
}

/** Whatever keeps us from releasing: the lease runs out by itself, as with upstream. */
async function leave(step: Promise<unknown>): Promise<void> {
  await step.catch(() => {});
}
