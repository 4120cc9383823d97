/**
 * Where storage listens, and how it stops: an address as Go writes it (`[host]:port`), served by one
 * or more HTTP servers. Upstream listens on every interface; here `localhost` means both loopback
 * addresses, since which of the two a client tries first is not ours to say.
 */
import type { RequestListener } from 'node:http';
import { isIPv6 } from 'node:net';
import { HttpServer, type Tls } from './server.js';

/** An empty host is every interface; port 0 is any free one. */
export type Address = { host: string; port: number };

/** Takes `localhost:8080`, `:8080`, `127.0.0.1:0`, `[::1]:8080`. Throws a RangeError. */
export function parseAddress(text: string): Address {
  const [, ipv6, name = '', digits] = /^(?:\[(.*)\]|([^\s:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  if (!(port <= 65535) || (ipv6 !== undefined && !isIPv6(ipv6))) {
    throw new RangeError(
      'expected [host]:port with a port of 0 to 65535: localhost:8080, :8080, [::1]:8080.',
    );
  }
  return { host: ipv6 ?? name.toLowerCase(), port };
}

/** The address cannot be had. `code` and `cause` are the system's. */
export class ListenError extends Error {
  override readonly name = 'ListenError';
  readonly code: string | undefined;

  constructor({ host, port }: Address, cause: NodeJS.ErrnoException) {
    const reason = REASONS[cause.code ?? ''] ?? cause.message;
    super(`cannot listen on ${show(host)}:${port}: ${reason}`, { cause });
    this.code = cause.code;
  }
}

export type Listening = {
  /** For a client on this machine, e.g. `http://localhost:8080`. */
  url: string;
  /** The addresses it is bound to, or `every interface`. */
  hosts: string[];
  /** Whether only programs on this machine can connect. */
  local: boolean;
  /** Stops, as {@link HttpServer.close} does. */
  close(patience: number): Promise<void>;
};

/**
 * Resolves when clients can connect. Rejects with {@link ListenError}, and then holds no port; with
 * the system's error when the `tls` files are no certificate with its key.
 */
export async function listen(
  app: RequestListener,
  address: Address,
  tls?: Tls,
): Promise<Listening> {
  const { host, port } = address;
  const bindTo = (where: Address) => bind(app, where, tls);
  const servers = host === 'localhost' ? await loopbacks(bindTo, port) : [await bindTo(address)];
  const addresses = servers.map((server) => server.address);
  return {
    url: `${tls ? 'https' : 'http'}://${show(host || 'localhost')}:${addresses[0]?.port}`,
    hosts: host === '' ? ['every interface'] : addresses.map(({ address }) => address),
    local: addresses.every(({ address }) => address === '::1' || address.startsWith('127.')),
    close: (patience) => close(servers, patience),
  };
}

const REASONS: Record<string, string> = {
  EADDRINUSE: 'the port is in use; stop the program that has it or choose another with --listen',
  EACCES: 'permission denied; choose a port above 1023 with --listen',
  EADDRNOTAVAIL: 'this machine does not have that address',
  ENOTFOUND: 'no such host',
};

/** How it shows that a machine has no such loopback address. */
const ABSENT = ['EADDRNOTAVAIL', 'EAFNOSUPPORT', 'EINVAL'];

async function loopbacks(
  bindTo: (where: Address) => Promise<HttpServer>,
  port: number,
): Promise<HttpServer[]> {
  for (let attempt = 1; ; attempt++) {
    const v4 = await bindTo({ host: '127.0.0.1', port }).catch(unlessAbsent);
    const servers = v4 ? [v4] : [];
    try {
      const v6 = bindTo({ host: '::1', port: v4?.address.port ?? port });
      const other = await (v4 ? v6.catch(unlessAbsent) : v6);
      return other ? [...servers, other] : servers;
    } catch (error) {
      await close(servers, 0);
      // The port that was free on one address was taken on the other: another may be free on both.
      const again = error instanceof ListenError && error.code === 'EADDRINUSE' && port === 0;
      if (!again || attempt === 100) throw error;
    }
  }
}

function unlessAbsent(error: unknown): undefined {
  if (error instanceof ListenError && ABSENT.includes(error.code ?? '')) return;
  throw error;
}

async function bind(
  app: RequestListener,
  { host, port }: Address,
  tls: Tls | undefined,
): Promise<HttpServer> {
  const where = { port, ...(host && { host }), ...(tls && { tls }) };
  try {
    return await HttpServer.listen(app, where);
  } catch (error) {
    throw new ListenError({ host, port }, error as NodeJS.ErrnoException);
  }
}

async function close(servers: HttpServer[], patience: number): Promise<void> {
  await Promise.all(servers.map((server) => server.close(patience)));
}

function show(host: string): string {
  return isIPv6(host) ? `[${host}]` : host;
}
