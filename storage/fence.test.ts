import { describe, expect, it } from 'vitest';
import { rules } from './fence.js';

describe('equal', () => {
  const { check } = rules.equal;

  it('accepts any version for a key that nobody has written', () => {
    for (const given of [0n, -1n, 5n]) expect(check(given, undefined)).toBeUndefined();
  });

  it('accepts the version that is there, also when it is 0', () => {
    for (const version of [0n, -1n, 5n]) expect(check(version, version)).toBeUndefined();
  });

  it('refuses lower and higher alike, and names both in hex', () => {
    expect(check(0x694d82254d5fa305n, 0x694d82254e18770an)).toBe(
      'given version (694d82254d5fa305) is different from the existing version (694d82254e18770a)',
    );
    expect(check(2n, -1n)).toBe('given version (2) is different from the existing version (-1)');
  });

  it('tells the neighbours that a double would take for one', () => {
    expect(check(4703569812595502727n, 4703569812595502721n)).toBe(
      'given version (41466fd2f0016e87) is different from the existing version (41466fd2f0016e81)',
    );
  });
});

describe.each([rules.monotonic, rules.holder])('$name', ({ check }) => {
  it('accepts the first token, the same one again, and a higher one', () => {
    expect(check(5n, undefined, 5n)).toBeUndefined();
    expect(check(5n, 5n, 5n)).toBeUndefined();
    expect(check(6n, 5n, 6n)).toBeUndefined();
    expect(check(2n ** 53n + 1n, 2n ** 53n, 2n ** 53n + 1n)).toBeUndefined();
    expect(check(2n ** 63n - 1n, 0n, 2n ** 63n - 1n)).toBeUndefined();
  });

  it('refuses a lower one, naming both numbers and the way out after a reset of etcd', () => {
    expect(check(5n, 1200n, 5n)).toBe(
      'stale fencing token: given 5 is lower than 1200 (if etcd began anew or a lease ID was used, see storage reset-fence)',
    );
    expect(check(2n ** 53n, 2n ** 53n + 1n, 2n ** 53n)).toMatch(/^stale fencing token: /);
  });

  it('refuses what is no token', () => {
    for (const given of [0n, -1n, -(2n ** 63n)]) {
      for (const current of [undefined, -5n, 0n, 5n]) {
        expect(check(given, current, given)).toBe(`expected a fencing token above 0, got ${given}`);
      }
    }
  });
});

describe('monotonic', () => {
  it('has nothing to do with who holds the lock', () => {
    expect(rules.monotonic.check(5n, 4n)).toBeUndefined();
  });
});

describe('holder', () => {
  const { check } = rules.holder;

  it("refuses a token below the holder's, even before the holder's first write", () => {
    expect(check(5n, undefined, 7n)).toBe('stale fencing token: given 5 is lower than 7');
    expect(check(5n, 4n, 7n)).toBe('stale fencing token: given 5 is lower than 7');
  });

  it("refuses a token ahead of the holder's", () => {
    expect(check(8n, 4n, 7n)).toBe("invalid fencing token: given 8 is ahead of 7, the holder's");
  });
});
