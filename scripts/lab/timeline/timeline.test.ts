// Pictures are judged by what is in them: by counting shapes, and by laying out their labels as a
// browser with wide letters would.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Event } from '../history.js';
import { svg, text } from './index.js';
import { long, pause, read, redis, Script, three, write } from './samples.js';

const title = 'A pause';
const nasty = `<b a="1">&amp; ]]> 'x' \u0000\u001b[31m\u202e \ud800 日本 --><script>alert(1)</script>`;

const samples = {
  'a pause without a fence': pause('none'),
  'a pause with a fence': pause('monotonic'),
  'three workers': three(),
  'a lock without tokens': redis(),
  'a long history': long(),
  'an empty history': [],
  'nasty texts': spoilt(),
};

describe('a picture', () => {
  test('has an arrow for every write, and one that turns back for every refusal', () => {
    const open = svg(pause('none'), { title });
    expect(count(open, '<g class="message write accepted">')).toBe(1);
    expect(count(open, '<g class="message write stale">')).toBe(1);
    expect(count(open, 'class="refused back line"')).toBe(0);

    const fenced = svg(pause('monotonic'), { title });
    expect(count(fenced, '<g class="message write accepted">')).toBe(1);
    expect(count(fenced, '<g class="message write refused">')).toBe(1);
    expect(count(fenced, '<g class="message read answered">')).toBe(2);
    expect(count(fenced, 'class="refused back line"')).toBe(1 + 1); // and one in the legend
    expect(labels(fenced)).toContain('bounced: stale token');
    expect(fenced).toContain('<title>stale fencing token: given 31 is lower than 33 (see there)');
  });

  test('tells what the value is after each accepted write, and of writes that came too late', () => {
    const values = (picture: string) => labels(picture).filter((label) => label.includes(' = '));
    expect(values(svg(pause('monotonic'), { title }))).toEqual(['counter = 6']);
    expect(values(svg(three(), { title }))).toEqual(['counter = 2', 'counter = 1', 'counter = 3']);
    expect(labels(svg(pause('none'), { title }))).toContain('accepted though stale');
    expect(labels(svg(pause('monotonic'), { title }))).not.toContain('accepted though stale');
  });

  test('shows a write that was accepted though stale as damage, in line, sign, word and value', () => {
    const open = svg(pause('none'), { title });
    const [damage = ''] = open.match(/<g class="message write stale">.*?<\/g>/) ?? [];
    expect(damage).toContain('class="stale write line"');
    expect(damage).toContain('marker-end="url(#stale)"');
    expect(damage).not.toContain('accepted');
    const sign = /<path class="stale solid" d="[^"]*z"\/>/g; // a triangle, not success's circle
    expect(damage.match(sign)).toHaveLength(1);
    expect(open.match(sign)).toHaveLength(1 + 1); // and one in the legend
    expect(open).toMatch(/<text class="stale bold"[^>]*>accepted though stale</);
    expect(labels(open).filter((label) => label === 'accepted though stale')).toHaveLength(1 + 1);
    expect(boxes(open, 'damage')).toEqual([boxes(open, 'value')[1]]);
    expect(svg(pause('monotonic'), { title }).match(sign)).toBeNull();
  });

  test('has a band for every fault, up to the end if it is never over', () => {
    const events = pause('none').filter((event) => !('over' in event && event.over));
    const picture = svg(events, { title });
    const [band, ...others] = boxes(picture, 'fault');
    expect(others).toEqual([]);
    expect(band?.right).toBe(boxes(picture, 'value').at(-1)?.right);
    expect(boxes(svg(pause('none'), { title }), 'fault')).toHaveLength(1);
    expect(boxes(svg(pause('none'), { title }), 'fault')[0]?.right).toBeLessThan(900);
  });

  test('shows by whose belief and by whose right the lock was held', () => {
    const picture = svg(pause('none'), { title });
    const [first, second] = boxes(picture, 'hue0 sure'); // etcd's lane, and client 1's
    const [wrong] = boxes(picture, 'hue0 belief');
    expect(second?.right).toBeCloseTo(first?.right ?? 0, 0);
    expect(wrong?.left).toBeCloseTo(first?.right ?? 0, 0);
    expect(wrong?.right).toBeGreaterThan(wrong?.left ?? 0);
    expect(boxes(picture, 'hue1 belief')).toEqual([]);
  });

  test('does not doubt a holder because a watch told of its key later than the lock did', () => {
    const late = new Script()
      .say(1, 'a', { what: 'holds', token: 3n, key: 'k/a' })
      .queue(5, 3n, 'k/a')
      .queue(6, 4n, 'k/b')
      .say(20, 'a', { what: 'releases' })
      .say(24, 'b', { what: 'holds', token: 4n, key: 'k/b' })
      .leave(30, 3n, 'k/a');
    const picture = svg(late.events, { title });
    expect(count(picture, '"hue0 belief"') + count(picture, '"hue1 belief"')).toBe(0);
    expect(count(picture, '"hue0 sure"') + count(picture, '"hue1 sure"')).toBe(4);
  });

  test('has no lane of etcd for a lock that is not in etcd', () => {
    const picture = svg(redis(), { title });
    expect(labels(picture)).not.toContain('etcd');
    expect(count(picture, '"hue0 sure"')).toBe(1);
    expect(labels(picture)).toContain('write 6');
  });

  test('finds the senders of requests that look the same', () => {
    const twice = (reason: string, took: number) =>
      new Script()
        .say(1, 'a', { what: 'holds' })
        .say(2, 'b', { what: 'holds' })
        .send(10, 'a', write('6', 0n), '', reason, took)
        .send(20, 'b', write('6', 0n), '', '', 20).events;
    // What was sent last was answered first.
    const overtaken = text(twice('', 400));
    expect(overtaken).toMatch(/0\.020 +┃ +┃ {2}write 6 ─+▸ ✓/);
    expect(overtaken).toMatch(/0\.210 +┃ {2}… write 6 ─+┃─+▸ ✓/);
    // What was accepted was never answered, and what was sent first was refused.
    const lost = (event: Event) => event.what === 'told' && event.who === 'b';
    const refused = text(twice('from a', 60).filter((event) => !lost(event)));
    expect(refused).toMatch(/0\.020 +┃ +┃ {2}write 6 ─+▸ ✓/);
    expect(refused).toMatch(/0\.040 +┃ {2}… write 6 ─+┃─+┤ ✗ from a/);
  });

  test('has one arrow, and no damage, where storage told of its decision late', () => {
    const request = write('6', 3n);
    const script = new Script()
      .queue(1, 3n, 'k/a')
      .say(2, 'a', { what: 'holds', token: 3n, key: 'k/a' })
      .say(10, 'a', { what: 'sends', id: 'a 1', request })
      .say(14, 'a', { what: 'told', id: 'a 1', answer: { accepted: true, val: '', reason: '' } })
      .say(15, 'a', { what: 'releases' })
      .leave(16, 3n, 'k/a');
    script.events.push({ at: 40, what: 'decided', request, accepted: true, reason: '' });
    expect(svg(script.events, { title }).match(/<g class="message [^"]*"/g)).toEqual([
      '<g class="message write accepted"',
    ]);
    expect(text(script.events)).toMatch(/0\.010 .*write 6 #3 ─+▸ ✓ counter = 6\n/);
  });

  test('keeps the order of the history for what happened at the same time', () => {
    const events = new Script()
      .say(1, 'a', { what: 'asks' })
      .say(1, 'a', { what: 'holds', token: 3n, key: 'k/a' })
      .queue(1, 3n, 'k/a')
      .send(1, 'a', write('1', 3n), '', '', 0)
      .say(1, 'a', { what: 'releases' })
      .leave(1, 3n, 'k/a').events;
    const words = text(events).match(/asks|holds(?= #)|write|releases|\(free\)| a (?= +·)/g);
    expect(words).toEqual(['asks', ' a ', 'holds', 'write', 'releases', '(free)']);
  });

  test('has an open end for a write that nobody answered', () => {
    const events = new Script()
      .say(1, 'a', { what: 'holds', token: 3n, key: 'k/a' })
      .say(2, 'a', { what: 'sends', id: 'a 1', request: write('1', 3n) }).events;
    expect(count(svg(events, { title }), '<g class="message write lost">')).toBe(1);
    expect(text(events)).toContain('write 1 #3 ─ no answer');
  });

  test('shortens long tokens, and has them in full for the pointer', () => {
    const history = pause('monotonic', [999_999n, 7587869125123456n]);
    expect(labels(svg(history, { title }))).toContain('holds · token 999999');
    expect(labels(svg(history, { title }))).toContain('holds · token …123456');
    expect(svg(history, { title })).toContain('<title>token 7587869125123456</title>');
  });

  test('cuts out a long wait and says how long it was', () => {
    expect(count(svg(pause('none'), { title }), 'class="cut"')).toBe(1);
    expect(labels(svg(pause('none'), { title }))).toContain('2.9 s later');
    expect(count(svg(long(), { title }), 'class="cut"')).toBe(0);
  });

  test('is as wide as a page where it can be', () => {
    for (const history of [pause('none'), three(), redis()]) {
      expect(svg(history, { title })).toContain('width="1200"');
    }
  });

  test.each(Object.entries(samples))('of %s has labels that do not overlap', (_, history) => {
    expect(overlaps(svg(history, { title }))).toEqual([]);
  });

  test('has labels that do not overlap, whatever happens', () => {
    fc.assert(
      fc.property(anyHistory(), (history) => {
        expect(overlaps(svg(history, { title }))).toEqual([]);
      }),
      { numRuns: 100 },
    );
  });

  test.each(Object.entries(samples))('of %s is well-formed and fetches nothing', (_, history) => {
    for (const name of [title, nasty]) {
      const picture = svg(history, { title: name });
      expect(malformed(picture)).toBe('');
      expect(picture).not.toMatch(/<script|href|@import|url\((?!#)/);
    }
  });

  test('is the same for the same history', () => {
    expect(svg(three(), { title })).toBe(svg(three(), { title }));
    expect(text(three())).toBe(text(three()));
  });
});

describe('a text', () => {
  test('has a column for each lane and a row for each moment', () => {
    expect(text(pause('monotonic'), { width: 88 })).toBe(`\
seconds  etcd      client 1              client 2                storage
  0.003            ·  asks
  0.009  client 1  ·
  0.012            ┃  holds #31
  0.015            ┃  read 5 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▸
  0.040            ┃░ paused
  0.210            ┃░                    ·  asks
⋮ +2.9 s           ┃░                    ·
  3.140  client 2  ╎░                    ·
  3.146            ╎░                    ┃  holds #33
  3.150            ╎░                    ┃  read 5 ┄┄┄┄┄┄┄┄┄┄┄┄▸
  3.158            ╎░                    ┃  write 6 #33 ───────▸ ✓ counter = 6
  3.420            ╎  goes on            ┃
  3.424            ╎  write 6 #31 ───────┃─────────────────────┤ ✗ stale token
  3.440               lost: session exp… ┃
  3.600                                     releases
  3.606  (free)

┃ holds the lock  ╎ believes so, but etcd has freed it  ░ fault  · waits  # token
`);
  });

  test('shows a write that was accepted though stale as damage', () => {
    const open = text(pause('none'), { width: 88 });
    expect(open).toMatch(/3\.158 .* write 6 #33 ─+▸ ✓ counter = 6\n/);
    expect(open).toMatch(/3\.424 .* write 6 #31 ═+┃═+▸ ! counter = 6, stale\n/);
    expect(open).toMatch(/ {2}! accepted though stale\n$/);
    const [, sign] = text(pause('none'), { color: true }).match(/\[([\d;]+)m! counter/) ?? [];
    expect(sign).toBe('7;31');
    expect(text(pause('monotonic'))).not.toContain('!');
  });

  test('has two rows for a message that was long on its way', () => {
    const events = new Script().send(10, 'a', write('6', 3n), '', '', 2000).events;
    expect(text(events)).toMatch(/0\.010 .*write 6 #3 ─ …\n +1\.010 .*… write 6 ─+▸ ✓/);
  });

  test.each(Object.entries(samples))('of %s keeps its width, in colour too', (_, history) => {
    for (const width of [72, 100]) {
      const plain = text(history, { width });
      for (const line of plain.split('\n').slice(0, -3)) {
        expect([...line].length).toBeLessThanOrEqual(width);
      }
      // biome-ignore lint/suspicious/noControlCharactersInRegex: what a colour begins with
      expect(text(history, { width, color: true }).replace(/\u001b\[[\d;]*m/g, '')).toBe(plain);
      expect(plain.replaceAll('\n', '')).not.toMatch(/\p{C}/u);
    }
  });
});

function count(picture: string, what: string): number {
  return picture.split(what).length - 1;
}

function labels(picture: string): string[] {
  return [...picture.matchAll(/<text[^>]*>(?:<title>[^<]*<\/title>)?([^<]*)</g)].map(
    ([, label = '']) => label.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code)),
  );
}

/** The rectangles of a class, but for the legend's. */
function boxes(picture: string, of: string): { left: number; right: number }[] {
  const all = picture.matchAll(/<rect class="([^"]*)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"/g);
  return [...all]
    .filter(([, name, , width]) => name === of && width !== '26')
    .map(([, , left, width]) => ({
      left: Number(left),
      right: round(Number(left) + Number(width)),
    }));
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** Of DejaVu Sans, the widest of the fonts that a browser may take; in em, at most. */
function em(letter: string): number {
  if (/[ .,:;'·|!()[\]ijlIftr]/.test(letter)) return 0.411;
  if (/[mwMW@%…\u2fff-\uffff]/.test(letter)) return 1;
  return /[A-Z=<>+]/.test(letter) ? 0.84 : 0.64;
}

/** Pairs of labels that would touch. */
function overlaps(picture: string): string[] {
  const all = [
    ...picture.matchAll(
      /<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" font-size="(\d+)"( text-anchor)?/g,
    ),
  ];
  const texts = labels(picture);
  expect(texts.length).toBe(all.length);
  const found = all.map(([, of = '', x, y, size, middle], index) => {
    const label = texts[index] ?? '';
    const letters = [...label].reduce((sum, letter) => sum + em(letter), 0);
    const width = letters * Number(size) * (of.includes('bold') ? 1.08 : 1);
    const left = Number(x) - (middle === undefined ? 0 : width / 2);
    return {
      label,
      left,
      right: left + width,
      top: Number(y) - Number(size),
      bottom: Number(y) + 3,
    };
  });
  return found.flatMap((a, index) =>
    found
      .slice(index + 1)
      .filter((b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
      .map((b) => `${a.label} | ${b.label}`),
  );
}

/** The first thing that XML does not allow; empty if there is none. */
function malformed(xml: string): string {
  const open: string[] = [];
  const token = /<(\/?)(\w+)((?: [\w:-]+="[^"<]*")*)(\/?)>|([^<]+)/gy;
  for (let at = 0; at < xml.length; at = token.lastIndex) {
    token.lastIndex = at;
    const found = token.exec(xml);
    if (found === null) return xml.slice(at, at + 80);
    const [whole, close, name = '', , empty, between] = found;
    if (/&(?!#\d+;)/.test(whole)) return whole;
    if (/\p{C}/u.test(whole.replaceAll('\n', ''))) return whole;
    if (between !== undefined) continue;
    if (close === '/' && open.pop() !== name) return whole;
    if (close !== '/' && empty !== '/') open.push(name);
  }
  return open.join(' ');
}

function spoilt(): Event[] {
  return new Script()
    .say(1, nasty, { what: 'asks' })
    .queue(2, 5n, nasty)
    .say(3, nasty, { what: 'holds', token: 5n, key: nasty })
    .send(4, nasty, { ...read(5n), key: nasty }, nasty)
    .say(5, nasty, { what: 'fault', fault: nasty, over: false })
    .send(9, nasty, { op: 'write', key: nasty, val: nasty, token: 5n })
    .send(19, nasty, { op: 'write', key: nasty, val: nasty, token: 5n }, '', nasty)
    .say(30, nasty, { what: 'lost', reason: nasty })
    .say(33, nasty, { what: 'fails', reason: nasty }).events;
}

/** Nothing that could happen: events of all kinds, in any order. */
function anyHistory(): fc.Arbitrary<Event[]> {
  const at = fc.oneof(fc.integer({ min: 0, max: 40 }), fc.integer({ min: 0, max: 9000 }));
  const who = fc.constantFrom('client 1', 'client 2', 'client 3');
  const token = fc.bigInt({ min: 1n, max: 1n << 40n });
  const words = fc.constantFrom('', 'session expired', 'no answer from etcd for 1.8 s');
  const step = fc.record({ at, who, token, words, yes: fc.boolean(), took: fc.nat(900) });
  const kinds = ['asks', 'holds', 'lost', 'fails', 'releases', 'fault', 'queue', 'leave', 'send'];
  return fc.array(fc.tuple(fc.constantFrom(...kinds), step), { maxLength: 40 }).map((steps) => {
    const script = new Script();
    for (const [kind, { at, who, token, words, yes, took }] of steps) {
      const key = `lock/${who}`;
      if (kind === 'asks' || kind === 'releases') script.say(at, who, { what: kind });
      if (kind === 'holds') script.say(at, who, { what: kind, token, key });
      if (kind === 'lost' || kind === 'fails') script.say(at, who, { what: kind, reason: words });
      if (kind === 'fault') script.say(at, who, { what: kind, fault: 'paused', over: yes });
      if (kind === 'queue') script.queue(at, token, key);
      if (kind === 'leave') script.leave(at, token, key);
      if (kind === 'send')
        script.send(at, who, yes ? read(token) : write('6', token), '', words, took);
    }
    return script.events;
  });
}
