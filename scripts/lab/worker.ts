// A holder of a lock as a process of its own: takes the lock that it is given, reads a counter in
// storage and writes it back one higher, and keeps on as if it held the lock whatever happens to it,
// because that is what a holder does that does not know. Does what it is told on standard input, a
// word a line, and tells each event on standard output, a line of JSON.

import { request } from 'node:http';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { decodeResponse, encodeRequest } from '../../storage/protocol.js';
import { type Answer, encodeEvent, faults, now, type Request, type Worker } from './history.js';
import { type LockName, type LockOptions, locks } from './locks.js';

/** What a worker is started with, as JSON. */
export type WorkerOptions = {
  name: string;
  lock: LockName;
  options: LockOptions;
  /** Where storage listens. */
  storage: string;
  /** The counter in storage. */
  key: string;
};

type Told<What extends Worker['what']> = Omit<Extract<Worker, { what: What }>, 'who' | 'what'>;

const options: WorkerOptions = JSON.parse(process.argv[2] ?? '');
const lock = await locks[options.lock].open(options.options);
/** Kept after the release: a holder that does not know goes on with it. 0: the lock hands out none. */
let token = 0n;
let counter = 0;
let requests = 0;
/** Milliseconds before what failed is tried again. */
const PAUSE = 100;

for await (const line of createInterface(process.stdin)) {
  const [command = '', argument] = line.split(' ');
  await perform(command, Number(argument));
}
process.exit(0);

async function perform(command: string, argument: number): Promise<void> {
  switch (command) {
    case 'acquire':
      return acquire();
    case 'read':
      return read();
    case 'write':
      return increment();
    // The write follows in the same tick: nothing that came meanwhile has been looked at.
    case 'block':
      block(argument);
      return increment();
    case 'release':
      return release();
    // Over and over, until it is ended from outside.
    case 'work':
      work(argument);
      return;
    default:
      throw new Error(`expected a command, got ${command}`);
  }
}

async function acquire(): Promise<void> {
  tell('asks', {});
  const { lost, ...grant } = await lock.acquire();
  token = grant.token ?? 0n;
  tell('holds', grant);
  lost?.addEventListener('abort', () => {
    const { reason } = lost.reason;
    if (reason !== 'closed') tell('lost', { reason });
  });
}

async function release(): Promise<void> {
  tell('releases', {});
  await lock.release();
}

/** `think`: milliseconds at most between the read and the write. */
async function work(think: number): Promise<void> {
  for (;;) {
    try {
      await acquire();
      await read();
      await sleep(Math.random() * think);
      await increment();
      await release();
    } catch (error) {
      tell('fails', { reason: (error as Error).message });
      lock.release().catch(() => {});
      await sleep(PAUSE);
    }
  }
}

async function read(): Promise<void> {
  const { accepted, val } = await ask({ op: 'read', val: '' });
  if (!accepted) throw new Error('refused');
  counter = Number(val);
}

async function increment(): Promise<void> {
  const { accepted } = await ask({ op: 'write', val: `${counter + 1}` });
  if (accepted) counter++;
}

/** Keeps the only thread busy for so many milliseconds. Both ends are told: a pipe takes them at once. */
function block(ms: number): void {
  tell('fault', { fault: faults.blocked, over: false });
  const end = now() + ms;
  while (now() < end);
  tell('fault', { fault: faults.blocked, over: true });
}

async function ask({ op, val }: Pick<Request, 'op' | 'val'>): Promise<Answer> {
  const { key } = options;
  const id = `${options.name} ${++requests}`;
  tell('sends', { id, request: { op, key, val, token } });
  const body = encodeRequest({ op, key, val, version: token });
  let response = await post(body);
  // Storage did not decide, or cannot say whether it did: the same again changes nothing.
  while (response.status !== 200) {
    await sleep(PAUSE);
    response = await post(body);
  }
  const { val: found, err } = decodeResponse(response.body);
  // A key that is not there is an answer like any other.
  const missing = err === 'key not found';
  const answer = { accepted: err === '' || missing, val: found, reason: missing ? '' : err };
  tell('told', { id, answer });
  return answer;
}

/** On a connection of its own: one that was kept may be closed by now, and a blocked loop not know. */
function post(body: string): Promise<{ status: number | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    request(options.storage, { method: 'POST', agent: false }, (response) =>
      text(response).then((body) => resolve({ status: response.statusCode, body }), reject),
    )
      .on('error', reject)
      .end(body);
  });
}

function tell<What extends Worker['what']>(what: What, event: Told<What>): void {
  const told = { at: now(), who: options.name, what, ...event } as Worker & { at: number };
  process.stdout.write(`${encodeEvent(told)}\n`);
}
