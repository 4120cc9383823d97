import { describe, expect, it } from 'vitest';
import { rules } from './fence.js';

describe('equal', () => {
  it('accepts any version for a key that nobody has written', () => {
    for (const given of [0n, -1n, 5n]) expect(rules.equal(given, undefined)).toBeUndefined();
  });

  it('accepts the version that is there, also when it is 0', () => {
    for (const version of [0n, -1n, 5n]) expect(rules.equal(version, version)).toBeUndefined();
  });

  it('refuses lower and higher alike, and names both in hex', () => {
    expect(rules.equal(0x694d82254d5fa305n, 0x694d82254e18770an)).toBe(
      'given version (694d82254d5fa305) is different from the existing version (694d82254e18770a)',
    );
    expect(rules.equal(2n, -1n)).toBe(
      'given version (2) is different from the existing version (-1)',
    );
  });

  it('tells the neighbours that a double would take for one', () => {
    expect(rules.equal(4703569812595502727n, 4703569812595502721n)).toBe(
      'given version (41466fd2f0016e87) is different from the existing version (41466fd2f0016e81)',
    );
  });
});
