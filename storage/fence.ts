/**
 * The fence rules: whether a request that carries one version (a fencing token) may go on where
 * another was seen before. `equal` is the check in etcd's contrib/lock storage. A rule sees numbers
 * and nothing else, so that every rule works on every store.
 */
import { hex } from './protocol.js';

export type Rule = {
  readonly name: string;
  /** Whether a read that carries a token above 0 is checked as a write is, and remembered. */
  readonly fencesReads: boolean;
  /**
   * Undefined accepts the given token, a text says why it is refused. `current` is undefined for a
   * key that nobody has used yet, `holder` when nobody holds the lock or no one asks. Must be pure:
   * a store may ask again.
   */
  readonly check: (
    given: bigint,
    current: bigint | undefined,
    holder?: bigint,
  ) => string | undefined;
};

/** By name, as the option offers them. */
export const rules = {
  /** Upstream's rule: the first writer's version is the only one a key ever accepts. */
  equal: { name: 'equal', fencesReads: false, check: equal },
  /** The highest token that a key has seen is the lowest that it accepts. */
  monotonic: { name: 'monotonic', fencesReads: true, check: monotonic },
  /** As monotonic, and only the token of whoever holds the lock. */
  holder: { name: 'holder', fencesReads: true, check: holder },
} satisfies Record<string, Rule>;

function equal(given: bigint, current: bigint | undefined): string | undefined {
  if (current === undefined || given === current) return undefined;
  return `given version (${hex(given)}) is different from the existing version (${hex(current)})`;
}

function monotonic(given: bigint, current: bigint | undefined): string | undefined {
  if (given <= 0n) return `expected a fencing token above 0, got ${given}`;
  if (current === undefined || given >= current) return undefined;
  return `${stale(given, current)} (if etcd began anew or a lease ID was used, see storage reset-fence)`;
}

function holder(given: bigint, current: bigint | undefined, token?: bigint): string | undefined {
  if (given > 0n && token !== undefined) {
    if (given < token) return stale(given, token);
    if (given > token)
      return `invalid fencing token: given ${given} is ahead of ${token}, the holder's`;
  }
  return monotonic(given, current);
}

function stale(given: bigint, current: bigint): string {
  return `stale fencing token: given ${given} is lower than ${current}`;
}
