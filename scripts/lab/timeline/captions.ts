// What a picture says in words, and beside which mark: a row of the picture for each text, and how
// far from the mark it begins. Long names, values and tokens are cut, and told in full as a title.

import type { Mark } from './lanes.js';

export type Caption = {
  readonly row: string;
  readonly dx: number;
  readonly text: string;
  readonly of?: string;
  readonly full?: string;
};

export function captions(mark: Mark): Caption[] {
  switch (mark.what) {
    case 'asks':
    case 'releases':
    case 'lost':
    case 'fails': {
      const full = 'reason' in mark ? mark.reason : '';
      return [{ row: `above ${mark.who}`, dx: 0, text: clip(said(mark, ''), 50), full }];
    }
    case 'holds': {
      const full = carrying('token ', mark.token, String);
      return [{ row: `bar ${mark.who}`, dx: 9, text: said(mark, SIGN), full, of: 'ink bold' }];
    }
    case 'fault':
      if (mark.over) return [];
      return [{ row: `above ${mark.who}`, dx: 8, text: clip(mark.fault, 32), of: 'ink bold' }];
    case 'owner': {
      if (mark.owner === undefined) return [];
      const { who, key, token } = mark.owner;
      const full = `${key}, created by revision ${token}`;
      return [{ row: 'owner', dx: 9, text: name(who ?? '(unknown)'), full, of: 'ink bold' }];
    }
    case 'sends': {
      const { who, op, val, token, answer } = mark.message;
      const full = op === 'read' ? answer : `${val}${carrying(' token ', token, String)}`;
      const of = op === 'read' ? '' : 'ink';
      return [{ row: `below ${who}`, dx: 8, text: said(mark, SIGN), full, of }];
    }
    case 'lands': {
      const { key, val, fate, reason } = mark.message;
      if (fate === 'lost' || fate === 'answered') return [];
      if (fate === 'refused') {
        const text = `bounced: ${shortReason(reason)}`;
        return [{ row: 'outcome', dx: 15, text, full: reason, of: 'refused bold' }];
      }
      const outcome = fate === 'stale' ? STALE : 'accepted';
      const value = `${clip(key, 14)} = ${clip(val, 14)}`;
      return [
        { row: 'outcome', dx: 15, text: outcome, of: `${fate} bold` },
        { row: 'value', dx: 9, text: value, full: `${key} = ${val}`, of: 'ink bold' },
      ];
    }
    default:
      return mark satisfies never;
  }
}

const SIGN = ' · token ';

export const STALE = 'accepted though stale';

/** What a worker does or is told; `sign` is what is said before a token. */
export function said(mark: Exclude<Mark, { what: 'owner' | 'lands' }>, sign: string): string {
  switch (mark.what) {
    case 'asks':
    case 'releases':
      return mark.what;
    case 'holds':
      return `holds${carrying(sign, mark.token)}`;
    case 'lost':
    case 'fails': {
      const verb = mark.what === 'lost' ? 'lost' : 'gives up';
      return mark.reason === '' ? verb : `${verb}: ${mark.reason}`;
    }
    case 'fault':
      return mark.over ? 'goes on' : mark.fault;
    case 'sends': {
      const { op, val, answer, token } = mark.message;
      const what = `${op} ${clip(op === 'read' ? answer : val, 14)}`.trim();
      return op === 'read' ? what : what + carrying(sign, token);
    }
    default:
      return mark satisfies never;
  }
}

function carrying(sign: string, token: bigint | undefined, told = shortToken): string {
  return token ? `${sign}${told(token)}` : '';
}

export function name(who: string): string {
  return clip(who, 18);
}

export function clip(text: string, max: number): string {
  const letters = [...text];
  return letters.length <= max ? text : `${letters.slice(0, max - 1).join('')}…`;
}

export function shortReason(reason: string): string {
  for (const [pattern, short] of REASONS) if (pattern.test(reason)) return short;
  const [first = ''] = reason.replace(/\s*\([^)]*\)/g, '').split(':');
  return clip(first.trim() || 'refused', 24);
}

/** What is said of a wait or a fault; of its length, one digit after the point is enough. */
export function seconds(ms: number, digits = 1): string {
  return `${(ms / 1000).toFixed(digits)} s`;
}

/** The texts of storage/fence.ts, which are made for logs. */
const REASONS: [RegExp, string][] = [
  [/^stale fencing token/, 'stale token'],
  [/is ahead of/, 'token not yet valid'],
  [/^expected a fencing token/, 'no token'],
  [/different from the existing version/, 'another version'],
];

/** Up to six digits, or the last six. */
function shortToken(token: bigint): string {
  const digits = String(token);
  return digits.length <= 6 ? digits : `…${digits.slice(-6)}`;
}
