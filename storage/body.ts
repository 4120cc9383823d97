/**
 * Reads the bodies of requests, no one of them above 1 MiB and not too many at once: a body under way
 * is memory that the sender need not even fill.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';

/** 1 MiB. */
export const BODY_LIMIT = 2 ** 20;

export class BodyReader {
  readonly #budget: number;
  #held = 0;

  /** `budget`: bytes of all bodies whose requests are not answered yet. Default 128 MiB. */
  constructor(budget = 2 ** 27) {
    this.#budget = budget;
  }

  /**
   * When there is no room the rest is thrown away as it arrives, so that a client that is still
   * sending gets to read the answer; the server's request timeout ends that.
   */
  read(
    req: IncomingMessage,
    res: ServerResponse,
  ): Promise<Buffer | 'too large' | 'busy' | 'aborted'> {
    return new Promise((resolve) => {
      // One buffer that doubles: a list of one-byte chunks would take a hundred times their size.
      let body = Buffer.alloc(0);
      let size = 0;
      const collect = (chunk: Buffer) => {
        const end = size + chunk.length;
        if (end > BODY_LIMIT) return discard('too large');
        if (end > body.length) {
          const length = Math.min(BODY_LIMIT, Math.max(end, 2 * body.length));
          if (this.#held + length - body.length > this.#budget) return discard('busy');
          this.#held += length - body.length;
          body = Buffer.concat([body], length);
        }
        chunk.copy(body, size);
        size = end;
      };
      const discard = (why: 'too large' | 'busy') => {
        this.#held -= body.length;
        body = Buffer.alloc(0);
        req.off('data', collect).resume();
        resolve(why);
      };
      res.once('close', () => {
        this.#held -= body.length;
        resolve('aborted');
      });
      if (Number(req.headers['content-length'] ?? 0) > BODY_LIMIT) return discard('too large');
      req.on('data', collect);
      req.once('end', () => resolve(body.subarray(0, size)));
    });
  }
}
