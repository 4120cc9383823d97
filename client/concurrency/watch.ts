// Watches on keys, all those of one client on one stream. A watch here does not carry
// events, it says "look again": on an event, and just as well when the stream broke, was ended or
// went silent. So a compaction, a reconnect or a lost message cannot lead anyone astray.
//
// etcd3's own watchers are not used: they resume from a revision, which may have been compacted,
// and one refused watch blocks those queued behind it.

import type { Etcd3, IDuplexStream, IWatchRequest, IWatchResponse, WatchClient } from 'etcd3';
import { delay } from './timing.js';

/** A watch on one key or range. Dispose of it when done. */
export interface Watch extends Disposable {
  /** Resolves when etcd has confirmed the watch: later changes are seen. Also when it is lost. */
  readonly confirmed: Promise<void>;
  /** Resolves at the first event, or when it can no longer be told whether there was one. */
  readonly changed: Promise<void>;
}

/** One key, or all keys from `key` up to `range_end`. */
export interface Range {
  key: Buffer;
  range_end?: Buffer;
}

/** All watches of one etcd client. */
export class Watches {
  static readonly #of = new WeakMap<Etcd3, Watches>();
  readonly #etcd: Etcd3;
  #stream: WatchStream | undefined;

  private constructor(etcd: Etcd3) {
    this.#etcd = etcd;
  }

  static of(etcd: Etcd3): Watches {
    const watches = Watches.#of.get(etcd) ?? new Watches(etcd);
    Watches.#of.set(etcd, watches);
    return watches;
  }

  /**
   * Watches for deletions, and for puts too if `puts`. There is no start revision: etcd sets a watch
   * that starts at or below its current revision aside until a resync that comes every 100 ms. So
   * the caller reads the key once more after `confirmed`.
   */
  add(range: Range, puts = false): Watch {
    if (!this.#stream || this.#stream.over) {
      this.#stream = new WatchStream(this.#etcd.watchClient, this.#stream?.broken ? PAUSE : 0);
    }
    return this.#stream.add(range, puts);
  }
}

/** Milliseconds before a stream is opened after one that broke. */
const PAUSE = 100;
/** Milliseconds between two questions whether a stream still lives. */
const PROBE = 2000;

type Duplex = IDuplexStream<IWatchRequest, IWatchResponse>;

interface Entry {
  range: Range;
  puts: boolean;
  /** As etcd numbers it; known from its confirmation on. */
  id?: string;
  over: boolean;
  confirm(): void;
  change(): void;
}

/** One stream. It lives from its first watch to its last, or until it breaks. */
class WatchStream {
  /** No more watches can be added. */
  over = false;
  /** It did not end by our own wish. */
  broken = false;
  /**
   * Watches that etcd has yet to be asked for. One after another: then it is plain, as in Go, which
   * one an answer is about, also behind a proxy that numbers them in its own way.
   */
  readonly #unasked: Entry[] = [];
  #asked: Entry | undefined;
  readonly #confirmed = new Map<string, Entry>();
  #duplex: Duplex | undefined;
  #questioned = false;
  readonly #probe = setInterval(() => this.#question(), PROBE);

  constructor(client: WatchClient, pause: number) {
    this.#open(client, pause).catch(() => this.#break());
  }

  add(range: Range, puts: boolean): Watch {
    const [confirmed, confirm] = deferred();
    const [changed, change] = deferred();
    const entry: Entry = { range, puts, over: false, confirm, change };
    this.#unasked.push(entry);
    this.#ask();
    return { confirmed, changed, [Symbol.dispose]: () => this.#remove(entry) };
  }

  #remove(entry: Entry): void {
    if (this.over || entry.over) return;
    entry.over = true;
    const { id } = entry;
    const known = id !== undefined && this.#confirmed.delete(id);
    // Not at once: whoever has waited for this goes first, and may watch again in the same breath.
    setImmediate(() => {
      if (this.over) return;
      if (this.#isIdle()) this.#finish();
      else if (known) this.#cancel(id);
    });
  }

  #isIdle(): boolean {
    return this.#confirmed.size === 0 && this.#unconfirmed().every(({ over }) => over);
  }

  #unconfirmed(): Entry[] {
    return this.#asked ? [this.#asked, ...this.#unasked] : this.#unasked;
  }

  #ask(): void {
    if (!this.#duplex || this.#asked) return;
    do this.#asked = this.#unasked.shift();
    while (this.#asked?.over);
    if (!this.#asked) return;
    const { range, puts } = this.#asked;
    this.#duplex.write({ create_request: { ...range, filters: puts ? [] : ['Noput'] } });
  }

  #cancel(id: string): void {
    this.#duplex?.write({ cancel_request: { watch_id: id } });
  }

  async #open(client: WatchClient, pause: number): Promise<void> {
    await delay(pause);
    if (this.over) return;
    const duplex = await client.watch();
    if (this.over) return close(duplex);
    duplex.on('data', (answer) => this.#receive(answer));
    duplex.on('error', () => this.#break());
    duplex.on('end', () => this.#break());
    this.#duplex = duplex;
    this.#ask();
  }

  #receive(answer: IWatchResponse): void {
    this.#questioned = false;
    if (answer.canceled) {
      // Either by our wish, and then nobody waits for it any more, or everybody looks again.
      if (answer.created || this.#confirmed.has(answer.watch_id)) this.#break();
      return;
    }
    if (answer.created && this.#asked) {
      const entry = this.#asked;
      this.#asked = undefined;
      if (entry.over) {
        this.#cancel(answer.watch_id);
      } else {
        entry.id = answer.watch_id;
        this.#confirmed.set(entry.id, entry);
        entry.confirm();
      }
      this.#ask();
    }
    if (answer.events.length > 0) this.#confirmed.get(answer.watch_id)?.change();
  }

  /** A half-open connection and a frozen member stay silent. What lives answers this. */
  #question(): void {
    if (!this.#questioned) {
      this.#questioned = true;
      this.#duplex?.write({ progress_request: {} });
    } else if (this.#duplex) {
      // Its error follows. Not ended before, so that etcd3 takes it for the member's fault.
      this.#duplex.cancel();
    } else {
      this.#break();
    }
  }

  #break(): void {
    if (this.over) return;
    this.broken = true;
    this.#finish();
    for (const { confirm, change } of [...this.#unconfirmed(), ...this.#confirmed.values()]) {
      confirm();
      change();
    }
  }

  #finish(): void {
    if (this.over) return;
    this.over = true;
    clearInterval(this.#probe);
    if (this.#duplex) close(this.#duplex);
  }
}

/** In this order, or etcd3 takes the cancellation for a fault of the member. */
function close(duplex: Duplex): void {
  duplex.end();
  duplex.cancel();
}

function deferred(): [Promise<void>, () => void] {
  let settle = () => {};
  const promise = new Promise<void>((resolve) => {
    settle = resolve;
  });
  return [promise, settle];
}
