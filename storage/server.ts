/**
 * An HTTP server on one address that stops without losing an answer. Upstream never stops on its own
 * account; node's `close()` would destroy a connection whose answer is still on its way to a slow
 * reader, so the connections are kept here.
 */
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, Server, type Socket } from 'node:net';

// Node's defaults leave a client that says nothing one minute and one that dawdles five.
const LIMITS = {
  headersTimeout: 10_000,
  requestTimeout: 30_000,
  connectionsCheckingInterval: 2000,
};
/** Milliseconds that a connection may neither send nor take anything. */
const IDLE = 30_000;
/**
 * Requests that one connection may have waiting. A client that sends more without reading an answer
 * is not served at all: each costs memory, and nothing has been written yet that would hold it back.
 */
const OWED = 1000;

export class HttpServer {
  readonly #server;
  /** How many answers each connection still waits for. */
  readonly #owed = new Map<Socket, number>();
  #closing = false;

  private constructor(app: RequestListener) {
    this.#server = createServer(LIMITS, (req, res) => {
      this.#owe(req.socket, 1);
      res.once('close', () => this.#owe(req.socket, -1));
      app(req, res);
    });
    this.#server.timeout = IDLE;
    this.#server.on('connection', (socket) => {
      this.#owed.set(socket, 0);
      socket.once('close', () => this.#owed.delete(socket));
    });
  }

  /** Without a host: on every interface. Rejects with the system's error. */
  static async listen(app: RequestListener, where: { host?: string; port: number }) {
    const server = new HttpServer(app);
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
    for (const [socket, owed] of this.#owed) if (owed === 0) socket.destroy();
    const cut = setTimeout(() => {
      for (const socket of this.#owed.keys()) socket.destroy();
    }, patience);
    try {
      Server.prototype.close.call(this.#server);
      await once(this.#server, 'close');
    } finally {
      clearTimeout(cut);
    }
  }

  #owe(socket: Socket, change: 1 | -1): void {
    const owed = this.#owed.get(socket);
    if (owed === undefined) return;
    this.#owed.set(socket, owed + change);
    if (owed + change > OWED) socket.destroy();
    // Half closed, not destroyed: a client that is still sending must get to read the answer.
    if (this.#closing && owed + change === 0) socket.end();
  }
}
