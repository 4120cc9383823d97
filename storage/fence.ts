/**
 * The fence rules: whether a write that carries one version (a fencing token) may replace what was
 * written under another. `equal` is the check in etcd's contrib/lock storage. A rule sees two numbers
 * and nothing else, so that every rule works on every store.
 */
import { hex } from './protocol.js';

/**
 * Undefined accepts the given version, a text says why it is refused. `current` is undefined for a
 * key that nobody has written yet. Must be pure: a store may ask again.
 */
export type Rule = (given: bigint, current: bigint | undefined) => string | undefined;

/** By name, as an option would offer them. */
export const rules = { equal } satisfies Record<string, Rule>;

/** Upstream's rule: the first writer's version is the only one a key ever accepts. */
function equal(given: bigint, current: bigint | undefined): string | undefined {
  if (current === undefined || given === current) return undefined;
  return `given version (${hex(given)}) is different from the existing version (${hex(current)})`;
}
