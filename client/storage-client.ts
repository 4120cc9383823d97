// Writes to storage over its HTTP protocol, as write() in etcd's contrib/lock/client/client.go.

import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { decodeResponse, encodeRequest } from '../storage/protocol.js';

/** Storage understood the write and refused it. The message is upstream's, `error: …`. */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly code = 'REFUSED';
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
 * @param url where storage listens, `http://host:port`
 * @throws Refused when storage does not accept the write; other errors when it cannot be reached
 *   or answers something else. Then the write may or may not have happened.
 */
export async function write(url: string, write: Write, signal?: AbortSignal): Promise<void> {
  const { key, value: val, version } = write;
  const body = encodeRequest({ op: 'write', key, val, version });
  const answer = await post(url, body, signal).catch(
    explain('failed to send a request to storage'),
  );
  let err: string;
  try {
    ({ err } = decodeResponse(answer));
  } catch (cause) {
    throw explained('failed to unmarshal response json', cause);
  }
  if (err !== '') throw new Refused(`error: ${err}`);
}

function post(url: string, body: string, signal?: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    };
    const options = { method: 'POST', headers, agent: false, ...(signal && { signal }) };
    request(url, options, (response) => text(response).then(resolve, reject))
      .on('error', reject)
      .end(body);
  });
}

function explain(what: string): (cause: unknown) => never {
  return (cause) => {
    throw explained(what, cause);
  };
}

function explained(what: string, cause: unknown): Error {
  // A failure on every address of a name has its texts in `errors` and none of its own.
  const reasons = cause instanceof AggregateError ? cause.errors : [cause];
  const texts = reasons.map((reason) => (reason instanceof Error ? reason.message : reason));
  return new Error(`${what}: ${texts.join(', ')}`, { cause });
}
