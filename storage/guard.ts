/**
 * Who may talk to storage at all. Upstream lets everybody; here a web page of another origin may not,
 * neither directly nor by a name of its own that it points to this machine (DNS rebinding), and with
 * a token set, nobody without it.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isIPv4 } from 'node:net';

export type GuardOptions = {
  /** A host name that is right on loopback too, besides `localhost` and the addresses. */
  host?: string | undefined;
  /** What every request must bring. Default: nothing. */
  token?: string | undefined;
};

/** Why a request is turned away. */
export type Denial = { readonly status: 401 | 403; readonly reason: string };

/** Undefined lets the request in. */
export type Guard = (req: IncomingMessage) => Denial | undefined;

export function createGuard({ host = 'localhost', token }: GuardOptions = {}): Guard {
  const known = token === undefined ? undefined : digest(token);
  return (req) => {
    if (isLoopback(req.socket.localAddress) && !isLocalName(req.headers.host, host)) {
      const reason = `expected Host to be localhost or a loopback address, got ${req.headers.host}`;
      return { status: 403, reason };
    }
    if (isForeign(req)) return { status: 403, reason: 'not for web pages of another origin' };
    if (known && !timingSafeEqual(known, digest(credentials(req)))) {
      const reason = 'expected the token of this storage (Authorization: Bearer TOKEN)';
      return { status: 401, reason };
    }
    return undefined;
  };
}

/** One that is not known any more counts as such. */
function isLoopback(address = '::1'): boolean {
  return address === '::1' || /^(::ffff:)?127\./.test(address);
}

function isLocalName(header: string | undefined, host: string): boolean {
  // Before HTTP/1.1 there was none; no browser speaks that.
  if (header === undefined) return true;
  const name = header.replace(/:\d*$/, '').toLowerCase();
  if (name === '[::1]' || name === 'localhost' || name === host) return true;
  return isIPv4(name) && isLoopback(name);
}

/** Whether a browser says that it was a page of another origin that asked. */
function isForeign({ method, headers }: IncomingMessage): boolean {
  const { origin, host, 'sec-fetch-site': site = 'none', 'sec-fetch-dest': dest } = headers;
  if (origin !== undefined && !(URL.canParse(origin) && new URL(origin).host === host)) return true;
  // A link on another page may lead here.
  const followed = method === 'GET' && dest === 'document';
  return site !== 'none' && site !== 'same-origin' && !followed;
}

/** As a bearer token, or as the password that a browser asks a person for. */
function credentials({ headers: { authorization = '' } }: IncomingMessage): string {
  const [, scheme = '', text = ''] = /^(\S+) +(\S+) *$/.exec(authorization) ?? [];
  if (scheme.toLowerCase() === 'bearer') return text;
  if (scheme.toLowerCase() !== 'basic') return '';
  return Buffer.from(text, 'base64').toString().replace(/^.*?:/, '');
}

/** Of one length whatever was sent, so that comparing takes the same time. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
