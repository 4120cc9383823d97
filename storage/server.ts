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

type Connection = {
  socket: Socket;
  /** The answers it still waits for, in their order. */
  readonly owed: Set<ServerResponse>;
};

export class HttpServer {
  readonly #server;
  /** In the order of their last answers. */
  readonly #connections = new Map<string, Connection>();
  readonly #most: number;
  #owed = 0;
  #closing = false;

  private constructor(app: RequestListener, tls: Tls | undefined, most: number) {
    const serve: RequestListener = (req, res) => {
      this.#owe(res);
      if (!req.socket.destroyed) app(req, res);
    };
    this.#server = tls
      ? createTlsServer({ ...LIMITS, ...tls }, serve)
      : createServer(LIMITS, serve);
    this.#server.timeout = IDLE;
    this.#most = most;
    this.#server.on('connection', (socket) => this.#keep(socket));
    // From then on this one is to be ended, and the other with it.
    this.#server.on('secureConnection', (socket) => {
      const connection = this.#connections.get(idOf(socket) ?? '');
      if (connection) connection.socket = socket;
      else socket.destroy();
    });
  }

  /**
   * Without a host: on every interface. `most`: connections at the same time; one more ends the one
   * that has kept the server waiting the longest. Default 400. Rejects with the system's error.
   */
  static async listen(
    app: RequestListener,
    {
      tls,
      most = CONNECTIONS,
      ...where
    }: { host?: string; port: number; tls?: Tls; most?: number },
  ) {
    const server = new HttpServer(app, tls, most);
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
    for (const { socket, owed } of this.#connections.values())
      if (owed.size === 0) socket.destroy();
    const cut = setTimeout(() => {
      for (const { socket } of this.#connections.values()) socket.destroy();
    }, patience);
    try {
      Server.prototype.close.call(this.#server);
      await once(this.#server, 'close');
    } finally {
      clearTimeout(cut);
    }
  }

  #keep(socket: Socket): void {
    const id = idOf(socket);
    const full = this.#connections.size >= this.#most && !this.#makeRoom();
    if (full || id === undefined) return void socket.destroy();
    const connection = { socket, owed: new Set<ServerResponse>() };
    this.#connections.set(id, connection);
    // By then a new connection may come from the same place.
    socket.once('close', () => this.#forget(id, connection));
  }

  #forget(id: string, connection: Connection): boolean {
    return this.#connections.get(id) === connection && this.#connections.delete(id);
  }

  /** Ends the connection that has kept the server waiting the longest, if any does. */
  #makeRoom(): boolean {
    for (const [id, { socket, owed }] of this.#connections) {
      const [first] = owed;
      if (first?.req.complete && !first.writableEnded) continue;
      this.#connections.delete(id);
      socket.destroy();
      return true;
    }
    return false;
  }

  #owe(res: ServerResponse): void {
    const id = idOf(res.req.socket);
    const connection = id === undefined ? undefined : this.#connections.get(id);
    if (id === undefined || connection === undefined) return void res.req.socket.destroy();
    const { socket, owed } = connection;
    const most = ++this.#owed > OWED_BY_ALL ? 1 : OWED;
    if (owed.add(res).size > most) socket.destroy();
    res.once('close', () => {
      this.#owed--;
      owed.delete(res);
      if (this.#closing && owed.size === 0) {
        // A client that is still sending must get to read the answer.
        if (res.req.complete) socket.destroySoon();
        else socket.end();
      }
      if (this.#forget(id, connection)) this.#connections.set(id, connection);
    });
  }
}

/**
 * The same for a connection and for the one that TLS makes of it; undefined for one that is already
 * over.
 */
function idOf({ remoteAddress, remotePort, localAddress }: Socket): string | undefined {
  return remoteAddress && `${remoteAddress} ${remotePort} ${localAddress}`;
}
