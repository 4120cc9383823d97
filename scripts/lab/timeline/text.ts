// A timeline in the terminal: a column for each lane and a row for each moment, from top to bottom,
// because a terminal has many lines and few columns. What lasts is a mark that goes on from row to
// row; what a worker sends runs to the right, behind the marks of the others, to storage.

import type { Event } from '../history.js';
import {
  clip,
  type Lane,
  type Lanes,
  LONG_WAIT,
  lanes,
  type Mark,
  type Message,
  type Span,
  seconds,
  shortReason,
  shortToken,
  tooLate,
} from './lanes.js';

export type TextOptions = {
  /** Columns; default 100. */
  readonly width?: number;
  /** With the colours of a terminal; default false. */
  readonly color?: boolean;
  /** What the lock's own server is called. Default `etcd`. */
  readonly server?: string;
};

export function text(
  history: readonly Event[],
  { width = 100, color = false, server }: TextOptions = {},
): string {
  const story = lanes(history, server);
  const grid = layout(story, width);
  const rows = [header(story, grid)];
  let last = 0;
  story.marks.forEach((mark, index) => {
    const wait = mark.at - last;
    if (index > 0 && wait > LONG_WAIT) {
      rows.push(states(new Row(width), story, grid, index - 1).put(0, `⋮ +${seconds(wait)}`, DIM));
    }
    last = mark.at;
    // Shown with the row before, see below.
    if (mark.what === 'lands' && directly(story, index - 1)) return;
    const row = states(new Row(width), story, grid, index);
    row.put(0, (mark.at / 1000).toFixed(3).padStart(TIME - 2), DIM);
    tell(row, mark, index, story, grid);
    rows.push(row);
  });
  return [...rows.map((row) => row.print(color)), '', key(story.server), ''].join('\n');
}

/** Milliseconds. */
const SOON = 100;
const TIME = 9;
/** At least, with the end of an arrow. */
const STORAGE = 24;
const key = (server: string) =>
  `┃ holds the lock  ╎ believes so, but ${server} has freed it  ░ fault  · waits  # token`;
const [DIM, BOLD, GREEN, RED] = ['2', '1', '32', '31'];
const HUES = ['34', '35', '33', '36'];

type Grid = {
  readonly owner: number;
  readonly workers: ReadonlyMap<string, { x: number; width: number; hue: string }>;
  readonly storage: number;
  readonly width: number;
};

function layout({ workers, owners }: Lanes, width: number): Grid {
  const names = workers.map(({ who }) => [...who].length);
  const owner = owners === undefined ? 0 : Math.min(Math.max(6, ...names) + 2, 14);
  const each = Math.min(Math.floor((width - TIME - owner - STORAGE) / workers.length), 30);
  const places = workers.map(({ who }, index) => {
    const hue = HUES[index % HUES.length] ?? '';
    return [who, { x: TIME + owner + index * each, width: each, hue }] as const;
  });
  return {
    owner,
    workers: new Map(places),
    storage: TIME + owner + workers.length * each + 2,
    width,
  };
}

function header(story: Lanes, { owner, workers, storage, width }: Grid): Row {
  const row = new Row(width).put(0, 'seconds', DIM);
  if (owner > 0) row.put(TIME, story.server, BOLD);
  for (const { who } of story.workers) {
    const lane = workers.get(who);
    if (lane !== undefined) row.put(lane.x, clip(who, lane.width - 2), `1;${lane.hue}`);
  }
  return row.put(storage, 'storage', BOLD);
}

/** What goes on in each lane at the mark of this index. */
function states(row: Row, story: Lanes, grid: Grid, index: number): Row {
  for (const lane of story.workers) {
    const place = grid.workers.get(lane.who);
    if (place !== undefined) row.put(place.x, state(lane, story, index), place.hue);
  }
  return row;
}

function state({ who, waits, beliefs, faults }: Lane, { owners }: Lanes, index: number): string {
  const now = ({ from, to }: Span<object>) => from <= index && index < to;
  const right = owners === undefined || owners.some((owner) => owner.who === who && now(owner));
  const lock = beliefs.some(now) ? (right ? '┃' : '╎') : waits.some(now) ? '·' : ' ';
  return lock + (faults.some(now) ? '░' : ' ');
}

function tell(row: Row, mark: Mark, index: number, story: Lanes, grid: Grid): void {
  if (mark.what === 'owner') {
    row.put(
      TIME,
      clip(mark.owner === undefined ? '(free)' : (mark.owner.who ?? '(unknown)'), grid.owner - 2),
    );
    return;
  }
  if (!('message' in mark)) {
    const lane = grid.workers.get(mark.who);
    if (lane !== undefined) row.put(lane.x + 3, clip(said(mark), row.free(lane.x + 3) - 1));
    return;
  }
  const { message } = mark;
  const lane = grid.workers.get(message.who ?? '');
  const lands = mark.what === 'lands' ? mark : directly(story, index);
  const color = lands === undefined || message.op === 'read' ? DIM : message.accepted ? GREEN : RED;
  if (lane !== undefined) {
    const label =
      mark.what === 'sends' ? request(message) : `… ${message.op} ${message.val}`.trim();
    const x = lane.x + 3 + row.write(lane.x + 3, clip(label, lane.width - 3)) + 1;
    const line = message.op === 'read' ? '┄' : '─';
    if (lands === undefined)
      row.put(x, message.accepted === undefined ? '─ no answer' : '─ …', color);
    else row.line(x, grid.storage - 2, line, message.accepted ? '▸' : '┤', color);
  }
  if (lands !== undefined) row.put(grid.storage, outcome(lands, story), color);
}

function said(mark: Extract<Mark, { who: string }>): string {
  switch (mark.what) {
    case 'asks':
    case 'releases':
      return mark.what;
    case 'holds':
      return mark.token === undefined ? 'holds' : `holds #${shortToken(mark.token)}`;
    case 'lost':
    case 'fails':
      return `${mark.what === 'lost' ? 'lost' : 'gives up'}: ${mark.reason}`;
    case 'fault':
      return mark.over ? 'goes on' : mark.fault;
    default:
      return mark satisfies never;
  }
}

function request({ op, val, token, answer = '' }: Message): string {
  if (op === 'read') return `read ${answer}`.trim();
  return token === 0n ? `write ${val}` : `write ${clip(val, 12)} #${shortToken(token)}`;
}

function outcome(mark: Extract<Mark, { what: 'sends' | 'lands' }>, story: Lanes): string {
  const { op, key, val, accepted, reason } = mark.message;
  if (!accepted) return `✗ ${shortReason(reason)}`;
  if (op === 'read') return '';
  return `✓ ${clip(key, 12)} = ${clip(val, 12)}${tooLate(mark, story) ? ', stale' : ''}`;
}

/** Where a message landed, if that was next and soon: then one row tells both. */
function directly({ marks }: Lanes, index: number) {
  const [sends, lands] = [marks[index], marks[index + 1]];
  if (sends?.what !== 'sends' || lands?.what !== 'lands') return undefined;
  return sends.message === lands.message && lands.at - sends.at < SOON ? lands : undefined;
}

/** A line of cells, each with a letter and its colour. */
class Row {
  readonly #cells: { letter: string; color: string }[];

  constructor(width: number) {
    this.#cells = Array.from({ length: width }, () => ({ letter: ' ', color: '' }));
  }

  put(x: number, letters: string, color = ''): this {
    this.write(x, letters, color);
    return this;
  }

  /** Returns how many cells it took. Letters that do not fit are left out. */
  write(x: number, letters: string, color = ''): number {
    let at = x;
    for (const letter of letters) {
      const wide =
        letter >= '\u1100' &&
        /\p{Script=Han}|\p{Script=Hangul}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Emoji_Presentation}/u.test(
          letter,
        );
      if (at + (wide ? 2 : 1) > this.#cells.length) break;
      this.#cells[at] = { letter, color };
      if (wide) this.#cells[at + 1] = { letter: '', color };
      at += wide ? 2 : 1;
    }
    return at - x;
  }

  /** How many cells have nothing in them from here on. */
  free(x: number): number {
    const next = this.#cells.findIndex(({ letter }, at) => at >= x && letter !== ' ');
    return (next < 0 ? this.#cells.length : next) - x;
  }

  /** Behind what is there already. */
  line(from: number, to: number, line: string, head: string, color: string): void {
    for (let x = from; x < to; x++) {
      if (this.#cells[x]?.letter === ' ') this.#cells[x] = { letter: line, color };
    }
    this.#cells[to] = { letter: head, color };
  }

  print(color: boolean): string {
    const end = this.#cells.findLastIndex(({ letter }) => letter.trim() !== '') + 1;
    const cells = this.#cells.slice(0, end);
    if (!color) return cells.map(({ letter }) => letter).join('');
    return cells
      .map(({ letter, color }, index) => {
        const [before = '', after = ''] = [cells[index - 1]?.color, cells[index + 1]?.color];
        const start = color !== '' && color !== before ? `\u001b[${color}m` : '';
        return start + letter + (color !== '' && color !== after ? '\u001b[0m' : '');
      })
      .join('');
  }
}
