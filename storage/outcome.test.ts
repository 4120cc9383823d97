import { describe, expect, it } from 'vitest';
import { formats, type Outcome, printable } from './outcome.js';

const refusal: Outcome = {
  at: Date.UTC(2026, 10, 29, 13, 46, 9),
  op: 'write',
  key: 'key0',
  val: 'value from client 1',
  token: 4703569812595502721n,
  fenced: false,
  result: 'refused',
  reason: 'stale fencing token: given 4703569812595502721 is lower than 4703569812595502727',
  seconds: 0.001,
};

const NASTY = 'a\n\r\t\u0000\u001b[2J\u007f\u009b\u2028\u2029\u202eb\u{e0001}é\u{1f600}';

describe('a line of text', () => {
  it('tells what was asked, under which token, and why it was refused', () => {
    expect(formats.text(refusal)).toBe(
      `2026-11-29T13:46:09.000Z write "key0" with token 4703569812595502721: refused: ${refusal.reason}`,
    );
    expect(formats.text({ ...refusal, op: 'read', result: 'accepted', reason: '' })).toBe(
      '2026-11-29T13:46:09.000Z read "key0" with token 4703569812595502721: accepted',
    );
    expect(
      formats.text({ ...refusal, op: '', key: '', result: 'invalid', reason: 'not JSON' }),
    ).toBe('2026-11-29T13:46:09.000Z invalid: not JSON');
  });

  it('has printable characters only, whatever the client sent', () => {
    expect(printable(NASTY)).toBe(
      'a\\u{a}\\u{d}\\u{9}\\u{0}\\u{1b}[2J\\u{7f}\\u{9b}\\u{2028}\\u{2029}\\u{202e}b\\u{e0001}é\u{1f600}',
    );
    expect(formats.text({ ...refusal, key: NASTY, reason: NASTY })).not.toMatch(
      /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u,
    );
  });

  it('is not longer than 256 characters and the dots that say so', () => {
    expect(printable('x'.repeat(257))).toBe(`${'x'.repeat(256)}...`);
    expect(printable('x'.repeat(256))).toBe('x'.repeat(256));
    const line = formats.text({ ...refusal, key: 'x'.repeat(1000) });
    expect(line).toContain(
      `write "${'x'.repeat(64)}..." with token 4703569812595502721: refused: `,
    );
    expect(line).toContain(refusal.reason);
  });
});

describe('a line of JSON', () => {
  it('has every field, and the token with all its digits', () => {
    expect(JSON.parse(formats.json(refusal))).toEqual({
      at: '2026-11-29T13:46:09.000Z',
      op: 'write',
      key: 'key0',
      token: '4703569812595502721',
      result: 'refused',
      reason: refusal.reason,
      seconds: 0.001,
    });
  });

  it('is one line that cannot steer a terminal and parses to what the client sent', () => {
    const line = formats.json({ ...refusal, key: NASTY, reason: NASTY });
    expect(line).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
    expect(JSON.parse(line)).toMatchObject({ key: NASTY, reason: NASTY });
  });

  it('has at most 256 characters of a text', () => {
    const line = formats.json({ ...refusal, key: 'x'.repeat(1000) });
    expect(JSON.parse(line).key).toBe(`${'x'.repeat(256)}...`);
  });
});
