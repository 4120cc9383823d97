// What a picture says in words, and beside which mark: a row of the picture for each text, and how
// far from the mark it begins. Long names, values and tokens are cut, and told in full as a title.

import {
  clip,
  type Lanes,
  type Mark,
  type Message,
  shortReason,
  shortToken,
  tooLate,
} from './lanes.js';

export type Caption = {
  readonly row: string;
  readonly dx: number;
  readonly text: string;
  readonly of?: string;
  readonly full?: string;
};

export function captions(mark: Mark, story: Lanes): Caption[] {
  switch (mark.what) {
    case 'asks':
      return [{ row: `above ${mark.who}`, dx: 0, text: 'asks' }];
    case 'releases':
      return [{ row: `above ${mark.who}`, dx: 0, text: 'releases' }];
    case 'lost':
    case 'fails': {
      const verb = mark.what === 'lost' ? 'told it is lost' : 'gives up';
      const text = mark.reason === '' ? verb : `${verb}: ${clip(mark.reason, 40)}`;
      return [{ row: `above ${mark.who}`, dx: 0, text, full: mark.reason }];
    }
    case 'holds': {
      const [text, full] = token('holds', mark.token);
      return [{ row: `bar ${mark.who}`, dx: 9, text, full, of: 'ink bold' }];
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
      const { who, ...message } = mark.message;
      const [text, full] = request(message);
      const of = message.op === 'read' ? '' : 'ink';
      return [{ row: `below ${who}`, dx: 8, text, full, of }];
    }
    case 'lands': {
      const { op, key, val, accepted, reason } = mark.message;
      if (accepted === undefined || (accepted && op === 'read')) return [];
      if (!accepted) {
        const text = `bounced: ${shortReason(reason)}`;
        return [{ row: 'outcome', dx: 15, text, full: reason, of: 'refused bold' }];
      }
      const outcome = tooLate(mark, story) ? 'accepted though stale' : 'accepted';
      return [
        { row: 'outcome', dx: 15, text: outcome, of: 'accepted bold' },
        { row: 'value', dx: 9, text: entry(key, val), full: `${key} = ${val}`, of: 'ink bold' },
      ];
    }
    default:
      return mark satisfies never;
  }
}

function request({ op, val, answer, token: of }: Omit<Message, 'who'>): [string, string] {
  if (op === 'write') return token(`write ${clip(val, 14)}`, of === 0n ? undefined : of, val);
  return [`read ${clip(answer ?? '', 14)}`.trim(), answer ?? ''];
}

/** With its token, and what is to be said in full. */
function token(text: string, of: bigint | undefined, full = ''): [string, string] {
  if (of === undefined) return [text, full];
  return [`${text} · token ${shortToken(of)}`, `${full} token ${of}`.trim()];
}

function entry(key: string, val: string): string {
  return `${clip(key, 14)} = ${clip(val, 14)}`;
}

export function name(who: string): string {
  return clip(who, 18);
}
