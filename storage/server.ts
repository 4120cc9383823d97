/**
 * An HTTP server on one address that stops without losing an answer and keeps nobody waiting for
 * those who dawdle. Upstream never stops on its own account; node's `close()` would destroy a
 * connection whose answer is still on its way to a slow reader, so the connections are kept here.
 */
import { once } from 'node:events';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, Server, type Socket } from 'node:net';

// Node's defaults leave a client that says nothing one minute and one that dawdles five.
const LIMITS = {
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  handshakeTimeout: 10_000,
  connectionsCheckingInterval: 2000,
};
/** Milliseconds that a connection may neither send nor take anything. */
const IDLE = 30_000;
/**
 * Requests that one connection may have waiting. A client that sends more without reading an answer
 * is not served at all: each costs memory, and nothing has been written yet that would hold it back.
 */
const OWED = 1000;
/** The same for all connections together: who has more than one then has to go. */
const OWED_BY_ALL = 5000;
/** Systems let a process have 1024 files by default, and localhost is two addresses. */
const CONNECTIONS = 400;

/** PEM: the certificate chain and its private key. */
export type Tls = { cert: Buffer; key: Buffer };

export class HttpServer {
  readonly #server;
  readonly #connections = new Map<Socket, Connection>();
  readonly #most: number;
  #owed = 0;
  #answers = 0;
  #closing = false;

  private constructor(
    app: RequestListener,
    { tls, most, idle }: { tls: Tls | undefined; most: number; idle: number },
  ) {
    const serve: RequestListener = (req, res) => {
      this.#owe(res);
      if (!req.socket.destroyed) app(req, res);
    };
    this.#server = tls
      ? createTlsServer({ ...LIMITS, ...tls }, serve)
      : createServer(LIMITS, serve);
    this.#server.timeout = idle;
    // One limit for all silence: node's own one between two requests would take two timers a request.
    this.#server.keepAliveTimeout = 0;
    this.#most = most;
    this.#server.on('connection', (socket) => this.#accept(socket));
    this.#server.on('secureConnection', (socket) => this.#secure(socket));
  }

  /**
   * Without a host: on every interface. `most`: connections at the same time; one more ends the one
   * that has kept the server waiting the longest. Default 400. `idle`: milliseconds that a connection
   * may neither send nor take anything. Default 30000. Rejects with the system's error.
   */
  static async listen(
    app: RequestListener,
    {
      tls,
      most = CONNECTIONS,
      idle = IDLE,
      ...where
    }: { host?: string; port: number; tls?: Tls; most?: number; idle?: number },
  ) {
    const server = new HttpServer(app, { tls, most, idle });
    server.#server.listen(where);
    await once(server.#server, 'listening');
    return server;
  }

  get address(): AddressInfo {
    return this.#server.address() as AddressInfo;
  }

  /**
   * Accepts nothing more, ends idle connections and waits for the requests in flight; cuts those
   * that are not done after `patience` milliseconds.
   */
  async close(patience: number): Promise<void> {
    this.#closing = true;
    for (const [socket, { owed }] of this.#connections) if (owed.length === 0) socket.destroy();
    const cut = setTimeout(() => {
      for (const socket of this.#connections.keys()) socket.destroy();
    }, patience);
    try {
      Server.prototype.close.call(this.#server);
      await once(this.#server, 'close');
    } finally {
      clearTimeout(cut);
    }
  }

  #accept(socket: Socket): void {
    if (this.#connections.size < this.#most || this.#makeRoom()) {
      this.#keep(socket, { owed: [], answered: this.#answers });
    } else {
      socket.destroy();
    }
  }

  /** From then on what TLS made of the connection is to be ended, and the connection with it. */
  #secure(socket: Socket): void {
    const all = [...this.#connections];
    const [raw, connection] = all.find(([raw]) => areSame(raw, socket)) ?? [];
    if (raw === undefined || connection === undefined) return void socket.destroy();
    this.#connections.delete(raw);
    this.#keep(socket, connection);
  }

  #keep(socket: Socket, connection: Connection): void {
    this.#connections.set(socket, connection);
    socket.once('close', () => {
      this.#connections.delete(socket);
      // Of pipelined requests only the first one's answer says that it is over.
      this.#owed -= connection.owed.splice(0).length;
    });
  }

  /** Ends the connection that has kept the server waiting the longest, if any does. */
  #makeRoom(): boolean {
    let longest: [Socket, Connection] | undefined;
    for (const each of this.#connections) {
      const [, { owed, answered }] = each;
      if (owed[0]?.req.complete && !owed[0].writableEnded) continue;
      if (longest === undefined || answered < longest[1].answered) longest = each;
    }
    if (longest === undefined) return false;
    const [socket] = longest;
    this.#connections.delete(socket);
    socket.destroy();
    return true;
  }

  #owe(res: ServerResponse): void {
    const { socket } = res.req;
    const connection = this.#connections.get(socket);
    if (connection === undefined) return void socket.destroy();
    const { owed } = connection;
    const most = ++this.#owed > OWED_BY_ALL ? 1 : OWED;
    if (owed.push(res) > most) socket.destroy();
    res.on('close', () => {
      const place = owed.indexOf(res);
      if (place < 0) return;
      this.#owed--;
      owed.splice(place, 1);
      connection.answered = ++this.#answers;
      if (this.#closing && owed.length === 0) {
        // A client that is still sending must get to read the answer.
        if (res.req.complete) socket.destroySoon();
        else socket.end();
      }
    });
  }
}

type Connection = {
  /** The answers that it waits for, the next one first. */
  readonly owed: ServerResponse[];
  /** How many the server had given when it got its last one, or began. */
  answered: number;
};

/** Of two sockets that are open: whether they are ends of the same connection. */
function areSame(one: Socket, other: Socket): boolean {
  return (
    one.remotePort !== undefined &&
    one.remotePort === other.remotePort &&
    one.remoteAddress === other.remoteAddress &&
    one.localAddress === other.localAddress
  );
}
