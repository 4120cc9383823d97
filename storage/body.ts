/**
 * Reads the bodies of requests, no one of them above 1 MiB and not too many at once: a body under way
 * is memory that its sender may hold for as long as the request may take.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';

/** 1 MiB. */
export const BODY_LIMIT = 2 ** 20;

type Body = Buffer | 'too large' | 'busy' | 'aborted';

const EMPTY = Buffer.alloc(0);

export class BodyReader {
  readonly #budget: number;
  #held = 0;
  /** How to give up each body that is not all there yet; the one that began first comes first. */
  readonly #unfinished = new Set<() => void>();

  /** `budget`: bytes of all bodies whose requests are not answered yet. Default 128 MiB. */
  constructor(budget = 2 ** 27) {
    this.#budget = budget;
  }

  /**
   * `busy` is for the one that has been sending for the longest when another one needs the room.
   * The rest of such a body, or of one that is too large, is thrown away as it arrives, so that a
   * client that is still sending gets to read the answer; the server's request timeout ends that.
   */
  read(req: IncomingMessage, res: ServerResponse): Promise<Body> {
    return new Promise((resolve) => {
      // One buffer that doubles: a list of one-byte chunks would take a hundred times their size.
      // Most bodies are one chunk, and that one is kept as it is.
      let body: Buffer = EMPTY;
      let size = 0;
      let reading = true;
      const announced = Number(req.headers['content-length']);
      const collect = (chunk: Buffer) => {
        const end = size + chunk.length;
        if (end > BODY_LIMIT) return discard('too large');
        if (end !== announced) this.#unfinished.add(giveUp);
        if (end > body.length) {
          const length = Math.min(BODY_LIMIT, Math.max(end, 2 * body.length));
          if (!this.#reserve(length - body.length, giveUp)) return;
          body = size === 0 ? chunk : Buffer.concat([body], length);
        }
        if (body !== chunk) chunk.copy(body, size);
        size = end;
      };
      const settle = (how: Body) => {
        reading = false;
        this.#unfinished.delete(giveUp);
        resolve(how);
      };
      const discard = (why: 'too large' | 'busy') => {
        this.#held -= body.length;
        body = EMPTY;
        req.off('data', collect).resume();
        settle(why);
      };
      const giveUp = () => discard('busy');
      res.on('close', () => {
        this.#held -= body.length;
        if (reading) settle('aborted');
      });
      if (announced > BODY_LIMIT) return discard('too large');
      req.on('data', collect);
      req.on('end', () => {
        if (reading) settle(body.subarray(0, size));
      });
    });
  }

  /** Whether there is room now; false when `own` had to be given up for it. */
  #reserve(bytes: number, own: () => void): boolean {
    while (this.#held + bytes > this.#budget) {
      const [first = own] = this.#unfinished;
      first();
      if (first === own) return false;
    }
    this.#held += bytes;
    return true;
  }
}
