/**
 * What storage needs of a place that keeps its data: one atomic read-modify-write. The decision comes
 * from outside and the store never looks into it, so that rules and stores combine freely.
 */

export type Entry = {
  /** Undefined for a key that was read under a fencing token before anybody wrote it. */
  readonly val: string | undefined;
  /** Of the last write, or of a fenced read after it. */
  readonly version: bigint;
};

/** What to do about a key: put this entry there, or leave it alone and say why. */
export type Decision = { readonly entry: Entry } | { readonly refusal: string };

/** Who had the lock when etcd was asked: the first key in its queue, and that key's token. */
export type Holder = {
  /** The key in etcd. */
  readonly key: Buffer;
  /** Its create revision: as long as the key has it, nobody else holds the lock. */
  readonly token: bigint;
  /** What to refuse an update with when the key is gone. */
  readonly gone: string;
};

export type Listing = { readonly entries: [key: string, entry: Entry][]; readonly more: boolean };

export interface Store {
  /** The entry as of a moment between the call and the answer. */
  read(key: string): Promise<Entry | undefined>;

  /**
   * Shows `decide` the key's entry and does what it says, with no other update in between. `decide`
   * must be pure: it may be asked again when another writer came first. An entry that is the very
   * one it was shown is not written again. A store that can tell, in the same step, that `holder`
   * lost the lock since then refuses with its text. Resolves to the decision that holds. Rejects,
   * with nothing changed, when `decide` throws, with {@link NoRoom} and, if its text does not say
   * otherwise, with {@link Unavailable}.
   */
  update(
    key: string,
    decide: (current: Entry | undefined) => Decision,
    holder?: Holder,
  ): Promise<Decision>;

  /** Up to `limit` entries, and whether there are more, for people to look at: values may be cut. */
  list(limit: number): Promise<Listing>;

  /** Rejects with {@link Unavailable} when the data cannot be had, within a few seconds. */
  check(): Promise<void>;

  /** Gives up what it holds. No call may be under way or follow. */
  close(): Promise<void>;
}

/** The store, or etcd behind it, cannot be had now. The text says whether an update may have happened. */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';
  readonly code = 'UNAVAILABLE';
}

/** The store works, but cannot keep this entry. */
export class NoRoom extends Error {
  override readonly name = 'NoRoom';
  readonly code = 'NO_ROOM';
}
