// Puts load on an HTTP server: so many connections, each with one request under way at any time. The
// bytes are prepared and the answers only measured by their Content-Length, with one buffer for all
// there is to read: with node's own HTTP client the client would be what is measured.

import { connect, type Socket } from 'node:net';
import type { Bench } from './case.js';
import { type Contestant, inTurn, quantile } from './measure.js';

export type Load = {
  readonly answers: number;
  readonly perSecond: number;
  /** Milliseconds from a request to its answer. */
  readonly p50: number;
  readonly p99: number;
};

/** What a connection asks for: the one and the other, in turn. */
export type Requests = readonly [Buffer, Buffer];

/** Rejects when an answer does not come, is not 200, or not as long as the first of its connection. */
export async function load(
  port: number,
  requests: readonly Requests[],
  { ms, signal }: { ms: number; signal: AbortSignal },
): Promise<Load> {
  signal.throwIfAborted();
  const times: number[] = [];
  const sockets: Socket[] = [];
  const stop = () => {
    for (const socket of sockets) socket.destroy();
  };
  signal.addEventListener('abort', stop);
  const start = performance.now();
  try {
    await Promise.all(requests.map((own) => talk(port, own, start + ms, times, sockets)));
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    signal.removeEventListener('abort', stop);
    for (const socket of sockets) socket.destroy();
  }
  const seconds = (performance.now() - start) / 1000;
  return {
    answers: times.length,
    perSecond: times.length / seconds,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
  };
}

/** Milliseconds of one, connecting included. */
const TURN = 150;

/** Loads the servers in turn; the loads of the rounds that count. */
export async function inTurns<Name extends string>(
  servers: Readonly<Record<Name, { port: number; requests: readonly Requests[] }>>,
  rounds: number,
  { scale, signal }: Bench,
): Promise<Record<Name, Load[]>> {
  const warmUp = 1;
  const loads = {} as Record<Name, Load[]>;
  const contestants = {} as Record<Name, Contestant>;
  for (const name of Object.keys(servers) as Name[]) {
    const { port, requests } = servers[name];
    const own: Load[] = [];
    loads[name] = own;
    contestants[name] = async () => {
      const one = await load(port, requests, { ms: TURN * scale, signal });
      own.push(one);
      return one.perSecond;
    };
  }
  await inTurn(contestants, { rounds, warmUp, signal });
  for (const name of Object.keys(loads) as Name[]) loads[name].splice(0, warmUp);
  return loads;
}

/** The bytes of a POST. */
export function post(body: string): Buffer {
  return Buffer.from(
    `POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

function talk(
  port: number,
  requests: Requests,
  until: number,
  times: number[],
  sockets: Socket[],
): Promise<void> {
  return new Promise((resolve, reject) => {
    let [next, other] = requests;
    let [sent, received, length] = [0, 0, 0];
    // A write that is refused is a 200 too: its answer has another length.
    let usual = 0;
    let done = false;
    const ask = () => {
      [received, length] = [0, 0];
      sent = performance.now();
      socket.write(next);
      [next, other] = [other, next];
    };
    const receive = (size: number, bytes: Uint8Array) => {
      received += size;
      length ||= lengthOf(bytes, size);
      usual ||= length;
      if (length !== usual || received > length) {
        const expected = usual ? `${usual} bytes with 200` : 'a short answer of 200';
        socket.destroy(new Error(`expected ${expected}, got ${text(bytes, size)}`));
      } else if (received === length) {
        const now = performance.now();
        times.push(now - sent);
        done = now >= until;
        if (done) socket.destroy();
        else ask();
      }
      return true;
    };
    const onread = { buffer: Buffer.alloc(16 * 1024), callback: receive };
    const socket = connect({ port, host: '127.0.0.1', noDelay: true, onread });
    socket
      .on('connect', ask)
      .on('error', reject)
      .on('close', () => {
        if (done) resolve();
        else reject(new Error('expected an answer, but the server hung up'));
      });
    sockets.push(socket);
  });
}

/** Of head and body, by the first piece of an answer; NaN if that does not tell, or is not of 200. */
function lengthOf(bytes: Uint8Array, size: number): number {
  const head = /^HTTP\/1\.1 200 (?=.*?\r\nContent-Length: (\d+)\r\n).*?\r\n\r\n/s.exec(
    text(bytes, size),
  );
  return head ? head[0].length + Number(head[1]) : Number.NaN;
}

function text(bytes: Uint8Array, size: number): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, size).toString('latin1');
}
