// Writes to storage over its HTTP protocol, as write() in etcd's contrib/lock/client/client.go.
// Unlike upstream it takes only a 200 for the answer of the fence: whatever stands between may say no.

import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { decodeResponse, encodeRequest } from '../storage/protocol.js';

/** Storage understood the write and refused it. The message is upstream's, `error: …`. */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly code = 'REFUSED';
}

/** Where storage is, and what it takes to be let in. */
export interface Target {
  /** `http://host:port` or `https://host:port`. */
  url: string;
  /** Certificates to trust, PEM. Default: those that Node trusts. */
  cacert?: Buffer;
  /** Sent as a bearer token. Default: none. */
  authToken?: string;
  /** Seconds that storage may take to answer. Default: 10. Upstream waits without limit. */
  timeout?: number;
}

export interface Write {
  key: string;
  value: string;
  /** The fencing token, a signed 64-bit integer. */
  version: bigint;
}

/**
 * Writes one value.
 *
 * @throws Refused when storage does not accept the write; other errors when it cannot be reached
 *   or answers something else. Then the write may or may not have happened.
 */
export async function write(target: Target, write: Write, signal?: AbortSignal): Promise<void> {
  const { key, value: val, version } = write;
  const { timeout = 10 } = target;
  const body = encodeRequest({ op: 'write', key, val, version });
  const limit = AbortSignal.timeout(Math.min(Math.round(timeout * 1000), LONGEST));
  const either = signal ? AbortSignal.any([signal, limit]) : limit;
  const [status, answer] = await post(target, body, either).catch((cause) => {
    throw limit.aborted && !signal?.aborted
      ? new Error(`storage did not answer within ${timeout} s: it may have written or not`, {
          cause,
        })
      : explained('failed to send a request to storage', cause);
  });
  let err: string;
  try {
    ({ err } = decodeResponse(answer));
  } catch (cause) {
    if (status !== 200) throw new Error(`storage answered with status ${status}`, { cause });
    throw explained('failed to unmarshal response json', cause);
  }
  if (status !== 200) throw new Error(`storage answered with status ${status}: ${err}`);
  if (err !== '') throw new Refused(`error: ${err}`);
}

/** Milliseconds: a timer of Node takes no more, some 24 days. */
const LONGEST = 2 ** 31 - 1;

function post(
  { url, cacert: ca, authToken }: Target,
  body: string,
  signal: AbortSignal,
): Promise<[status: number | undefined, body: string]> {
  return new Promise((resolve, reject) => {
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      ...(authToken !== undefined && { authorization: `Bearer ${authToken}` }),
    };
    const options = { method: 'POST', headers, agent: false, ca, signal };
    const take = (response: IncomingMessage) => {
      text(response).then((body) => resolve([response.statusCode, body]), reject);
    };
    const request = new URL(url).protocol === 'https:' ? httpsRequest : httpRequest;
    request(url, options, take).on('error', reject).end(body);
  });
}

function explained(what: string, cause: unknown): Error {
  // A failure on every address of a name has its texts in `errors` and none of its own.
  const reasons = cause instanceof AggregateError ? cause.errors : [cause];
  const texts = reasons.map((reason) => (reason instanceof Error ? reason.message : reason));
  return new Error(`${what}: ${texts.join(', ')}`, { cause });
}
