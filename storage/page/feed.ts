/**
 * What the page shows, as server-sent events: `snapshot` (once per connection) the rule and the last
 * decisions, `decisions` those made since, `keys` the listing of the store whenever it changed,
 * `beat` nothing but that the server lives. What a busy or broken moment would send too often is
 * sent together: neither many requests nor many watchers make this a burden. One timer serves all
 * watchers; without any, nothing is listed.
 */
import type { ServerResponse } from 'node:http';
import type { Outcome } from '../outcome.js';
import type { Entry, Store } from '../stores/store.js';

export type FeedOptions = {
  store: Pick<Store, 'list'>;
  /** Told in each snapshot as it is. */
  about: unknown;
  /** Aborted when the server stops: ends every stream. */
  signal: AbortSignal;
};

export class Feed {
  readonly #options: FeedOptions;
  readonly #watchers = new Set<ServerResponse>();
  readonly #counts = { accepted: 0, refused: 0, 'not found': 0, failed: 0, invalid: 0 };
  /** The newest last. */
  readonly #recent: Decision[] = [];
  #untold: Decision[] = [];
  /** Whether decisions were told since the last tick. */
  #told = false;
  /** The listing as it was told last. */
  #keys: string | undefined;
  #listing = false;
  /** When it may be listed again, on the clock of `performance`. */
  #rested = 0;
  #outdated = false;
  #timer: NodeJS.Timeout | undefined;
  #ticks = 0;

  constructor(options: FeedOptions) {
    this.#options = options;
    options.signal.addEventListener('abort', () => this.#end(), { once: true });
  }

  observe({ at, op, key, token, result, reason }: Outcome): void {
    this.#counts[result]++;
    const decision = { at, op, result, key: cut(key), token, reason: copy(cut(reason)) };
    push(this.#recent, decision);
    this.#outdated = true;
    if (this.#watchers.size === 0) return;
    push(this.#untold, decision);
    if (!this.#told) this.#tell();
  }

  /** Answers with a stream that ends when the reader, being too slow, or the server goes. */
  watch(res: ServerResponse): void {
    if (res.destroyed) return;
    // A response without a socket waits for one before it on the connection: it would hold its
    // place here for ever if the connection broke now.
    if (this.#options.signal.aborted || this.#watchers.size >= WATCHERS || !res.socket) {
      const text = `expected at most ${WATCHERS} pages to watch at once; close one\n`;
      res.writeHead(503, { 'Content-Type': 'text/plain', 'Cache-Control': 'no-store' }).end(text);
      return;
    }
    this.#tell();
    res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    const about = JSON.stringify(this.#options.about);
    res.write(
      `retry: 1000\n${event('snapshot', `{"about":${about},${this.#news(this.#recent)}}`)}`,
    );
    if (this.#keys !== undefined) res.write(event('keys', this.#keys));
    this.#watchers.add(res);
    res.once('close', () => this.#leave(res));
    this.#timer ??= setInterval(() => this.#tick(), TICK);
    if (this.#keys === undefined) this.#list();
  }

  #tick(): void {
    this.#ticks++;
    this.#told = false;
    this.#tell();
    if (this.#outdated || this.#ticks % LIST === 0) this.#list();
    if (this.#ticks % BEAT === 0) this.#send('beat', '');
  }

  #tell(): void {
    if (this.#untold.length === 0) return;
    this.#send('decisions', `{${this.#news(this.#untold)}}`);
    this.#untold = [];
    this.#told = true;
  }

  #news(decisions: Decision[]): string {
    const shown = decisions.slice(-SHOWN);
    const texts = shown.map((one) => JSON.stringify({ ...one, token: `${one.token}` }));
    return `"decisions":[${texts}],"counts":${JSON.stringify(this.#counts)}`;
  }

  async #list(): Promise<void> {
    if (this.#listing || performance.now() < this.#rested) return;
    this.#listing = true;
    this.#outdated = false;
    const start = performance.now();
    const keys = await listed(this.#options.store);
    // Looking takes at most a tenth of the time, however large the values are.
    this.#rested = performance.now() + 9 * (performance.now() - start);
    this.#listing = false;
    if (this.#watchers.size === 0 || keys === this.#keys) return;
    this.#keys = keys;
    this.#send('keys', keys);
  }

  #send(name: string, data: string): void {
    const text = event(name, data);
    for (const res of this.#watchers) {
      if (res.writableLength <= BACKLOG) {
        res.write(text);
      } else {
        this.#leave(res);
        res.destroy();
      }
    }
  }

  #leave(res: ServerResponse): void {
    this.#watchers.delete(res);
    if (this.#watchers.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#untold = [];
    this.#keys = undefined;
  }

  #end(): void {
    for (const res of this.#watchers) {
      this.#leave(res);
      res.end();
    }
  }
}

/** What is shown of an outcome. */
type Decision = Pick<Outcome, 'at' | 'op' | 'result' | 'key' | 'token' | 'reason'>;

/** Milliseconds between two looks at what there is to tell. */
const TICK = 250;
/** Ticks between two listings when this process changed nothing: others may write to its store. */
const LIST = 4;
/** Ticks between two signs of life. The server ends connections that are idle for 30 s. */
const BEAT = 60;
const WATCHERS = 50;
/** Bytes that may wait for a reader. */
const BACKLOG = 2 ** 20;
/** Decisions and keys that are shown. */
const SHOWN = 100;
/** Characters of a text that are shown. */
const LENGTH = 200;

async function listed(store: Pick<Store, 'list'>): Promise<string> {
  try {
    const { entries, more } = await store.list(SHOWN);
    return JSON.stringify({ entries: entries.map(listedEntry), more });
  } catch (error) {
    return JSON.stringify({
      unavailable: cut(error instanceof Error ? error.message : `${error}`),
    });
  }
}

function listedEntry([key, { val, version }]: [string, Entry]) {
  return { key: cut(key), val: val === undefined ? null : cut(val), token: `${version}` };
}

/** Keeps the last ones, at least those that are shown. */
function push(list: Decision[], item: Decision): void {
  if (list.push(item) >= 2 * SHOWN) list.splice(0, SHOWN);
}

/** Not in the middle of a character. */
function cut(text: string): string {
  if (text.length <= LENGTH) return text;
  return `${copy(text.slice(0, LENGTH).replace(/[\ud800-\udbff]$/, ''))}…`;
}

/** By way of bytes: a text that is a piece of a big one, as a reason may be, keeps that in memory. */
function copy(text: string): string {
  return text && Buffer.from(text, 'utf16le').toString('utf16le');
}

/** JSON has no line ends of its own, so that `data` is one line. */
function event(name: string, data: string): string {
  return `event: ${name}\ndata: ${data}\n\n`;
}
