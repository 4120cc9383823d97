// A TCP proxy between a client and an etcd that behaves as badly as a network may. Its mode can be
// changed at any time and holds for connections that are open as well as for new ones. Nothing is
// ever thrown away: what is held back comes through, in order, once the way is free again, as after
// a partition, where TCP sends again what was not acknowledged. A close is held back like bytes.

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface FaultProxy extends AsyncDisposable {
  /** `http://127.0.0.1:port`, to use in place of the target. */
  readonly endpoint: string;
  /** Bytes that have arrived here so far, also those held back. */
  readonly bytes: Readonly<Record<Direction, number>>;
  /** Resolves when more bytes arrive from now on, the sum of them being at least `count`. */
  traffic(direction: Direction, count?: number): Promise<void>;
  /** Lets everything through at once, first what was held back. The mode at the start. */
  pass(): void;
  /** Lets everything through `ms` milliseconds after it came. */
  delay(ms: number): void;
  /** Connections open and stay open, and nothing comes through either way. */
  swallow(): void;
  /** Only what the client sends is held back. */
  dropToServer(): void;
  /** Only what etcd sends is held back. */
  dropToClient(): void;
  /** Closes all connections, and new ones at once. */
  refuse(): void;
  /** Closes all connections once; what they held back is gone. New ones are as the mode says. */
  cut(): void;
  /**
   * Lets everything through until etcd answers a call; closes that connection instead of passing
   * the answer on: the call has taken effect and the client cannot know. Resolves when that has
   * happened. What stands in for the answer is an HTTP/2 frame of type HEADERS, so no TLS.
   */
  cutAfterRequest(): Promise<void>;
}

export type Direction = 'toServer' | 'toClient';

/** Starts a proxy to `target`, a `host:port` or a URL with these. */
export async function startProxy(target: string): Promise<FaultProxy> {
  const { hostname, port } = new URL(target.includes('://') ? target : `http://${target}`);
  const proxy = new TcpProxy({ host: hostname, port: Number(port) });
  await proxy.listening;
  return proxy;
}

interface Mode {
  refuse?: boolean;
  held?: readonly Direction[];
  delay?: number;
}

class TcpProxy implements FaultProxy {
  readonly bytes = { toServer: 0, toClient: 0 };
  readonly listening: Promise<unknown>;
  readonly #target: { host: string; port: number };
  readonly #server = createServer({ noDelay: true }, (client) => this.#accept(client));
  readonly #connections = new Set<Connection>();
  readonly #onTraffic = new Set<() => void>();
  #mode: Mode = {};
  #onAnswer: (() => void) | undefined;

  constructor(target: { host: string; port: number }) {
    this.#target = target;
    this.listening = once(this.#server.listen(0, '127.0.0.1'), 'listening');
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  traffic(direction: Direction, count = 1): Promise<void> {
    const enough = this.bytes[direction] + count;
    return new Promise((resolve) => {
      const look = () => {
        if (this.bytes[direction] < enough) return;
        this.#onTraffic.delete(look);
        resolve();
      };
      this.#onTraffic.add(look);
    });
  }

  pass(): void {
    this.#change({});
  }

  delay(ms: number): void {
    this.#change({ delay: ms });
  }

  swallow(): void {
    this.#change({ held: ['toServer', 'toClient'] });
  }

  dropToServer(): void {
    this.#change({ held: ['toServer'] });
  }

  dropToClient(): void {
    this.#change({ held: ['toClient'] });
  }

  refuse(): void {
    this.#change({ refuse: true });
    this.cut();
  }

  cut(): void {
    for (const connection of this.#connections) connection.destroy();
  }

  cutAfterRequest(): Promise<void> {
    return new Promise((resolve) => {
      this.#onAnswer = resolve;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#change({ refuse: true });
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #change(mode: Mode): void {
    this.#mode = mode;
    for (const { toServer, toClient } of this.#connections) {
      toServer.pump();
      toClient.pump();
    }
  }

  #accept(client: Socket): void {
    if (this.#mode.refuse) {
      client.on('error', () => {}).destroy();
      return;
    }
    const server = connect({ ...this.#target, noDelay: true });
    const isAnswer = answerDetector();
    const connection: Connection = {
      toServer: new Pipe(server, () => this.#wait('toServer')),
      toClient: new Pipe(client, () => this.#wait('toClient')),
      destroy: () => {
        client.destroy();
        server.destroy();
        connection.toServer.stop();
        connection.toClient.stop();
        this.#connections.delete(connection);
      },
    };
    this.#connections.add(connection);
    const receive = (direction: Direction) => (bytes: Buffer) => {
      // Looked at in every mode, to know where frames begin.
      if (direction === 'toClient' && isAnswer(bytes) && this.#onAnswer) {
        this.#onAnswer();
        this.#onAnswer = undefined;
        connection.destroy();
      } else {
        connection[direction].push(bytes);
      }
      this.bytes[direction] += bytes.length;
      for (const look of [...this.#onTraffic]) look();
    };
    const ends = [
      [client, 'toServer'],
      [server, 'toClient'],
    ] as const;
    for (const [socket, direction] of ends) {
      socket
        .on('data', receive(direction))
        .on('error', () => {})
        .on('close', () => {
          if (this.#connections.has(connection)) connection[direction].push(CLOSE);
          if (client.closed && server.closed) connection.destroy();
        });
    }
  }

  /** Milliseconds to hold back what goes in a direction; undefined: until the mode changes. */
  #wait(direction: Direction): number | undefined {
    return this.#mode.held?.includes(direction) ? undefined : (this.#mode.delay ?? 0);
  }
}

interface Connection {
  readonly toServer: Pipe;
  readonly toClient: Pipe;
  destroy(): void;
}

const CLOSE = Symbol('close');

/** One direction of a connection: what has arrived and not yet gone on. */
class Pipe {
  readonly #queue: { at: number; item: Buffer | typeof CLOSE }[] = [];
  readonly #to: Socket;
  readonly #wait: () => number | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(to: Socket, wait: () => number | undefined) {
    this.#to = to;
    this.#wait = wait;
  }

  push(item: Buffer | typeof CLOSE): void {
    this.#queue.push({ at: performance.now(), item });
    this.pump();
  }

  pump(): void {
    clearTimeout(this.#timer);
    for (let head = this.#queue[0]; head; head = this.#queue[0]) {
      const wait = this.#wait();
      if (wait === undefined) return;
      const left = head.at + wait - performance.now();
      if (left > 0) {
        this.#timer = setTimeout(() => this.pump(), left);
        return;
      }
      this.#queue.shift();
      if (head.item === CLOSE) this.#to.end();
      else this.#to.write(head.item);
    }
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#queue.length = 0;
  }
}

/** Tells for each piece of what an HTTP/2 server sends whether a HEADERS frame begins in it. */
function answerDetector(): (bytes: Buffer) => boolean {
  const HEADER = 9;
  const HEADERS = 1;
  const header: number[] = [];
  let payloadLeft = 0;
  return (bytes) => {
    let found = false;
    for (let i = 0; i < bytes.length; ) {
      const skipped = Math.min(payloadLeft, bytes.length - i);
      payloadLeft -= skipped;
      i += skipped;
      if (i === bytes.length) break;
      header.push(bytes.readUInt8(i++));
      if (header.length < HEADER) continue;
      const [high = 0, middle = 0, low = 0, type] = header.splice(0);
      payloadLeft = (high << 16) | (middle << 8) | low;
      found ||= type === HEADERS;
    }
    return found;
  };
}
