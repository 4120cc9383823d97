import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { BODY_LIMIT, BodyReader } from './body.js';

/** One request to a reader: what to send its body with, and how to end its answer. */
function request(bodies: BodyReader) {
  const req = Object.assign(new PassThrough({ highWaterMark: 2 * BODY_LIMIT }), { headers: {} });
  const res = new EventEmitter();
  const body = bodies.read(req as unknown as IncomingMessage, res as unknown as ServerResponse);
  return { req, body, answered: () => res.emit('close') };
}

describe('the bodies of all requests together', () => {
  it('take no more memory than their budget: who has sent for the longest gives way', async () => {
    const bodies = new BodyReader(4500);
    const [first, second, third] = [request(bodies), request(bodies), request(bodies)];
    second.req.end(Buffer.alloc(1000));
    expect(await second.body).toHaveLength(1000);
    first.req.write(Buffer.alloc(2000));
    third.req.end(Buffer.alloc(3000));
    expect(await first.body).toBe('busy');
    first.req.end('the rest, which nobody needs');
    expect(await third.body).toHaveLength(3000);
  });

  it('that are there keep their room: who comes then is told', async () => {
    const bodies = new BodyReader(3000);
    const [first, second] = [request(bodies), request(bodies)];
    first.req.end(Buffer.alloc(2000));
    expect(await first.body).toHaveLength(2000);
    second.req.write(Buffer.alloc(2000));
    expect(await second.body).toBe('busy');
    first.answered();
    const third = request(bodies);
    third.req.end(Buffer.alloc(2000));
    expect(await third.body).toHaveLength(2000);
  });

  it('count until they are answered, or cut off', async () => {
    const bodies = new BodyReader(3000);
    for (let i = 0; i < 10; i++) {
      const { req, body, answered } = request(bodies);
      req.write(Buffer.alloc(1500));
      if (i % 2) req.end();
      else await new Promise((resolve) => setImmediate(resolve));
      if (i % 2) expect(await body).toHaveLength(1500);
      answered();
      if (i % 2 === 0) expect(await body).toBe('aborted');
    }
    const { req, body } = request(bodies);
    req.write(Buffer.alloc(4000));
    expect(await body).toBe('busy');
    const last = request(bodies);
    last.req.end(Buffer.alloc(3000));
    expect(await last.body).toHaveLength(3000);
  });

  it('may be of any size up to the limit, in pieces of any size', async () => {
    const bodies = new BodyReader();
    for (const size of [0, 1, 1000, BODY_LIMIT]) {
      const { req, body } = request(bodies);
      for (let left = size; left > 0; left -= 1 + (size >> 3)) {
        req.write(Buffer.alloc(Math.min(left, 1 + (size >> 3))));
      }
      req.end();
      expect(await body).toHaveLength(size);
    }
    const { req, body } = request(bodies);
    req.write(Buffer.alloc(BODY_LIMIT));
    req.write('x');
    expect(await body).toBe('too large');
  });
});
