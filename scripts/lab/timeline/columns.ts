// Gives each moment of a timeline its place from left to right: in proportion to time where there is
// room, further apart where labels need it, and closer together where nothing happens for long. That
// no two labels overlap holds by construction: a row is taken up to where its last label ends.

import { LONG_WAIT } from './lanes.js';

export type Moment = { readonly at: number; readonly claims: readonly Claim[] };

/** Room in a row that a moment needs, from left to right of its own place. */
export type Claim = readonly [row: string, left: number, right: number];

/** `xs`: of each moment; `end` is as near to `to` as it can be. */
export function columns(moments: readonly Moment[], from: number, to: number) {
  for (let air = 5; air > 1; air -= 0.05) {
    const airy = place(moments, from, air);
    if (airy.end <= to) return airy;
  }
  return place(moments, from, 1);
}

/** Pixels, each times the air. */
const PER_MS = 0.05;
const STEP = 6;
const CUT = 96;
/** Between two labels in a row. */
const SPACE = 10;

function place(moments: readonly Moment[], from: number, air: number) {
  const taken = new Map<string, number>();
  const xs: number[] = [];
  const cuts: { readonly x: number; readonly wait: number }[] = [];
  let [x, last] = [from, moments[0]?.at ?? 0];
  for (const { at, claims } of moments) {
    const wait = at - last;
    if (wait > LONG_WAIT) {
      const free = Math.max(x, ...taken.values());
      x = free + CUT * air;
      cuts.push({ x: (free + x) / 2, wait });
    } else if (xs.length > 0) x += (STEP + wait * PER_MS) * air;
    for (const [row, left] of claims) {
      const free = taken.get(row) ?? Number.NEGATIVE_INFINITY;
      x = Math.max(x, free + SPACE * (1 + (air - 1) / 2) - left);
    }
    for (const [row, , right] of claims)
      taken.set(row, Math.max(taken.get(row) ?? from, x + right));
    xs.push(x);
    last = at;
  }
  return { xs, cuts, end: Math.max(x, ...taken.values()) + STEP * 3 };
}
