/**
 * What storage needs of a place that keeps its data: one atomic read-modify-write. The decision comes
 * from outside and the store never looks into it, so that rules and stores combine freely.
 */

export type Entry = { readonly val: string; readonly version: bigint };

/** What to do about a key: put this entry there, or leave it alone and say why. */
export type Decision = { readonly entry: Entry } | { readonly refusal: string };

export interface Store {
  read(key: string): Promise<Entry | undefined>;

  /**
   * Shows `decide` the key's entry and does what it says, with no other update in between. `decide`
   * must be pure: it may be asked again when another writer came first. Resolves to the decision
   * that holds, which may be the store's own refusal. Rejects, with nothing changed, when `decide`
   * throws.
   */
  update(key: string, decide: (current: Entry | undefined) => Decision): Promise<Decision>;
}
