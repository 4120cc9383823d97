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
/** Systems let a process have 1024 files by default. */
const CONNECTIONS = 800;

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
  #closing = false;

  private constructor(app: RequestListener, tls: Tls | undefined, most: number) {
    const serve: RequestListener = (req, res) => {
      this.#owe(idOf(req.socket), res);
      app(req, res);
    };
    this.#server = tls
      ? createTlsServer({ ...LIMITS, ...tls }, serve)
      : createServer(LIMITS, serve);
    this.#server.timeout = IDLE;
    this.#most = most;
    this.#server.on('connection', (socket) => this.#keep(socket));
    // From then on this one is to be ended, and the other with it.
    this.#server.on('secureConnection', (socket) => {
      const connection = this.#connections.get(idOf(socket));
      if (connection) connection.socket = socket;
      else socket.destroy();
    });
  }

  /**
   * Without a host: on every interface. `most`: connections at the same time; one more ends
   * the one that has kept the server waiting the longest. Default 800. Rejects with the system's error, also of the `tls` files.
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
    if (this.#connections.size >= this.#most && !this.#makeRoom()) return void socket.destroy();
    const id = idOf(socket);
    this.#connections.set(id, { socket, owed: new Set() });
    socket.once('close', () => this.#connections.delete(id));
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

  #owe(id: string, res: ServerResponse): void {
    const connection = this.#connections.get(id);
    if (connection === undefined) return;
    const { socket, owed } = connection;
    if (owed.add(res).size > OWED) socket.destroy();
    res.once('close', () => {
      owed.delete(res);
      // Half closed, not destroyed: a client that is still sending must get to read the answer.
      if (this.#closing && owed.size === 0) socket.end();
      if (this.#connections.delete(id)) this.#connections.set(id, connection);
    });
  }
}

/** The same for a connection and for the one that TLS makes of it. */
function idOf({ remoteAddress, remotePort, localAddress }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}
