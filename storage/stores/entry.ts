/**
 * An entry as one line of text, for the stores that keep bytes: the version in decimal, a space, the
 * value; the version alone for a key that has no value yet. So `etcdctl get` shows what is there, and
 * no number is rounded on the way.
 */
import type { Entry } from './store.js';

export function encodeEntry({ val, version }: Entry): string {
  return val === undefined ? `${version}` : `${version} ${val}`;
}

/** Throws a SyntaxError for what {@link encodeEntry} did not write. */
export function decodeEntry(text: string): Entry {
  const space = text.indexOf(' ');
  const [digits, val] =
    space < 0 ? [text, undefined] : [text.slice(0, space), text.slice(space + 1)];
  if (!/^-?\d{1,19}$/.test(digits)) {
    throw new SyntaxError(`expected "<version> <value>", got "${text.slice(0, 40)}"`);
  }
  return { val, version: BigInt(digits) };
}
