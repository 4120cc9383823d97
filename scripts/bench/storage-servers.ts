// The servers that the storage cases load, each a process of its own and checked before it is timed,
// and what they are asked.

import { fileURLToPath } from 'node:url';
import { encodeRequest } from '../../storage/protocol.js';
import type { Etcd } from '../lib/etcd.js';
import { Program, startStorage } from '../lib/program.js';
import type { Bench } from './case.js';
import { load, post, type Requests } from './storage-load.js';

export const OPS = ['read', 'accepted write', 'refused write'] as const;

export type Op = (typeof OPS)[number];
export type Server = AsyncDisposable & { readonly port: number };

/** Starts storage, writes what is read later, and checks that it does what is going to be timed. */
export async function startOurs(token: bigint, args: string[], bench: Bench): Promise<Server> {
  const program = await startStorage(args);
  try {
    for (let i = 0; i < MOST; i++) {
      for (const op of ['accepted write', 'read', 'refused write'] as const) {
        const body = bodyOf(op, token, `key ${i}`, 'value from client 1');
        const answer = await fetch(program.url, { method: 'POST', body });
        const text = await answer.text();
        const kept = `{"val":"value from client 1","version":${token},"err":""}`;
        const right = op === 'refused write' ? /"err":"(given|stale)/.test(text) : text === kept;
        if (!right) throw new Error(`expected ${op} to be what it says, got ${text}`);
      }
    }
    return await warm(program, Number(new URL(program.url).port), token, bench);
  } catch (error) {
    await program[Symbol.asyncDispose]();
    throw error;
  }
}

/** Starts a script of this folder that echoes what it parsed, and checks that it does. */
export async function startRival(script: string, bench: Bench): Promise<Server> {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const program = Program.start(process.execPath, ['--import', 'tsx', path]);
  try {
    const port = Number(/\d+$/.exec(await program.line('listening on'))?.[0]);
    const body = bodyOf('accepted write', 7n, 'key', 'value');
    const headers = { 'Content-Type': 'application/json' };
    const answer = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', headers, body });
    const text = await answer.text();
    if (text !== body) throw new Error(`expected ${script} to send back ${body}, got ${text}`);
    return await warm(program, port, 7n, bench);
  } catch (error) {
    await program[Symbol.asyncDispose]();
    throw error;
  }
}

/** Lets a server compile what it is going to run. */
async function warm(
  program: Program,
  port: number,
  token: bigint,
  { scale, signal }: Bench,
): Promise<Server> {
  for (const op of OPS) await load(port, requestsOf(op, token, 8), { ms: 200 * scale, signal });
  return Object.assign(program, { port });
}

/** Puts a key first in the queue of the lock `/lock`, and returns its token. */
export async function takeLock(etcd: Etcd): Promise<bigint> {
  await etcd.ctl('put', '/lock/bench', '');
  const found = await etcd.ctl('get', '/lock/bench', '--write-out', 'fields');
  return BigInt(/"CreateRevision" : (\d+)/.exec(found)?.[1] ?? 0);
}

/**
 * For each connection a key of its own and two requests in turn: writing what is there already would
 * be no write.
 */
export function requestsOf(op: Op, token: bigint, connections: number): Requests[] {
  return Array.from({ length: connections }, (_, i) => [
    post(bodyOf(op, token, `key ${i}`, 'value from client 1')),
    post(bodyOf(op, token, `key ${i}`, 'value from client 2')),
  ]);
}

function bodyOf(op: Op, token: bigint, key: string, val: string): string {
  if (op === 'read') return encodeRequest({ op, key, val: '', version: 0n });
  const version = op === 'refused write' ? token - 1n : token;
  return encodeRequest({ op: 'write', key, val, version });
}

/** Connections at most. */
const MOST = 64;
