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
    let watches = Watches.#of.get(etcd);
    if (!watches) {
      watches = new Watches(etcd);
      Watches.#of.set(etcd, watches);
    }
    return watches;
  }

  /**
   * Watches for deletions, and for puts too if `puts`. There is no start revision: etcd sets a watch that starts
   * at or below its current revision aside until a resync that comes every 100 ms. So the caller
   * reads the key once more after `confirmed`.
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
  confirm(): void;
  change(): void;
}

/** One stream. It lives from its first watch to its last, or until it breaks. */
class WatchStream {
  /** No more watches can be added. */
  over = false;
  /** It did not end by our own wish. */
  broken = false;
  readonly #entries = new Map<string, Entry>();
  readonly #unsent: IWatchRequest[] = [];
  #duplex: Duplex | undefined;
  #lastId = 0;
  #asked = false;
  readonly #probe = setInterval(() => this.#ask(), PROBE);

  constructor(client: WatchClient, pause: number) {
    this.#open(client, pause).catch(() => this.#break());
  }

  add(range: Range, puts: boolean): Watch {
    // Our own IDs, never used twice on a stream, so that no answer can be taken for another's.
    const id = String(++this.#lastId);
    const [confirmed, confirm] = deferred();
    const [changed, change] = deferred();
    this.#entries.set(id, { confirm, change });
    const filters = puts ? [] : (['Noput'] as const).slice();
    this.#send({ create_request: { ...range, watch_id: id, filters } });
    return {
      confirmed,
      changed,
      [Symbol.dispose]: () => {
        if (!this.#entries.delete(id) || this.over) return;
        this.#send({ cancel_request: { watch_id: id } });
        // Not at once: whoever looks again watches again in the same breath.
        setImmediate(() => this.#entries.size === 0 && this.#finish());
      },
    };
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
    for (const request of this.#unsent.splice(0)) duplex.write(request);
  }

  #send(request: IWatchRequest): void {
    if (this.#duplex) this.#duplex.write(request);
    else this.#unsent.push(request);
  }

  #receive(answer: IWatchResponse): void {
    this.#asked = false;
    const entry = this.#entries.get(answer.watch_id);
    if (answer.canceled) {
      // Not by our wish, or the entry would be gone. A refused watch may come without its ID.
      if (entry || answer.created) this.#break();
      return;
    }
    if (answer.created) entry?.confirm();
    if (answer.events.length > 0) entry?.change();
  }

  /** A half-open connection and a frozen member stay silent. What lives answers this. */
  #ask(): void {
    if (this.#asked) {
      this.#duplex?.cancel();
      this.#break();
      return;
    }
    this.#asked = true;
    if (this.#duplex) this.#send({ progress_request: {} });
  }

  #break(): void {
    if (this.over) return;
    this.broken = true;
    this.#finish();
    for (const { confirm, change } of this.#entries.values()) {
      confirm();
      change();
    }
    this.#entries.clear();
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
