/**
 * The Express app around the service: any POST, whatever its path and content type, is one request,
 * as in etcd's contrib/lock. Unlike upstream, which exits on a request it cannot read, it answers
 * each with the same three fields and a status; other methods, compressed bodies and bodies over
 * 1 MiB are refused. It never listens.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import express, { type Express } from 'express';
import type { Rule } from './fence.js';
import { DecodeError, decodeRequest, encodeResponse, type Response, refused } from './protocol.js';
import { handle, UnknownOpError } from './service.js';
import type { Store } from './stores/store.js';

export type AppOptions = {
  store: Store;
  rule: Rule;
  /** Gets one line, safe to print, for each request whose JSON was not understood or that failed. */
  log: (line: string) => void;
};

export function createApp({ store, rule, log }: AppOptions): Express {
  const app = express();
  app.disable('x-powered-by');
  app.use(async (req, res) => {
    // Of requests that were pipelined, only the one whose turn it is to be answered goes on:
    // otherwise one packet full of small reads would hold as many big answers in memory.
    if (res.socket === null) await once(res, 'socket');
    if (req.method !== 'POST') {
      res.setHeader('Allow', 'POST');
      return send(
        res,
        405,
        refused(`expected a POST with one JSON request as its body, got ${req.method}`),
      );
    }
    const encoding = req.headers['content-encoding'] ?? 'identity';
    if (encoding.toLowerCase() !== 'identity') {
      return send(res, 415, refused(`expected the body not to be encoded, got ${encoding}`));
    }
    const body = await readBody(req);
    if (body === 'aborted') return;
    if (body === 'too large') {
      return send(res, 413, refused(`expected the body to be at most ${BODY_LIMIT} bytes`));
    }
    try {
      send(res, 200, await handle(decodeRequest(body), store, rule));
    } catch (error) {
      const [status, line] = explain(error);
      log(printable(line));
      send(res, status, refused(line));
    }
  });
  return app;
}

/** 1 MiB. */
const BODY_LIMIT = 2 ** 20;

function send(res: ServerResponse, status: number, response: Response): void {
  res.statusCode = status;
  res.setHeader('Content-Type', 'application/json').end(encodeResponse(response));
}

function explain(error: unknown): [status: number, line: string] {
  if (error instanceof DecodeError) return [400, `failed to unmarshal json: ${error.message}`];
  if (error instanceof UnknownOpError) return [400, error.message];
  return [500, `failed to handle the request: ${error}`];
}

/**
 * When it is too large the rest is thrown away as it arrives, so that a client that is still sending
 * gets to read the answer; the server's request timeout ends that.
 */
function readBody(req: IncomingMessage): Promise<Buffer | 'too large' | 'aborted'> {
  return new Promise((resolve) => {
    // One buffer, growing if its length was not told: a list of one-byte chunks would take a hundred
    // times their size.
    const length = Number(req.headers['content-length'] ?? 0);
    let body = Buffer.alloc(length <= BODY_LIMIT ? length : 0);
    let size = 0;
    const collect = (chunk: Buffer) => {
      const end = size + chunk.length;
      if (end > BODY_LIMIT) return discard();
      if (end > body.length) body = Buffer.concat([body], Math.max(end, 2 * body.length));
      chunk.copy(body, size);
      size = end;
    };
    const discard = () => {
      body = Buffer.alloc(0);
      req.off('data', collect).resume();
      resolve('too large');
    };
    if (length > BODY_LIMIT) return discard();
    req.on('data', collect);
    req.once('end', () => resolve(body.subarray(0, size)));
    req.once('close', () => resolve('aborted'));
  });
}

const PRINTED = 256;

/** The first 256 characters as one line that cannot steer a terminal or pass for another. */
function printable(line: string): string {
  return line
    .slice(0, PRINTED)
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`)
    .concat(line.length > PRINTED ? '...' : '');
}
