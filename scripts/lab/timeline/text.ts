// A timeline in the terminal: a column for each lane and a row for each moment, from top to bottom,
// because a terminal has many lines and few columns. What lasts is a mark that goes on from row to
// row; what a worker sends runs to the right, behind the marks of the others, to storage.

import type { Event } from '../history.js';
import { clip, STALE, said, seconds, shortReason } from './captions.js';
import {
  type Fate,
  type Lane,
  type Lanes,
  LONG_WAIT,
  lanes,
  type Mark,
  type Message,
  type Span,
} from './lanes.js';
import { plain } from './shapes.js';

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
  let last = story.marks[0]?.at ?? 0;
  story.marks.forEach((mark, index) => {
    const wait = mark.at - last;
    if (wait > LONG_WAIT) rows.push(row(`⋮ +${seconds(wait)}`, index - 1, grid));
    last = mark.at;
    // Shown with the row before, see below.
    if (mark.what === 'lands' && directly(story, index - 1)) return;
    const told = row((mark.at / 1000).toFixed(3).padStart(TIME - 2), index, grid);
    tell(told, mark, index, story, grid);
    rows.push(told);
  });
  return [...rows.map((row) => row.print(color)), '', key(story), ''].join('\n');
}

/** Milliseconds. */
const SOON = 100;
const TIME = 9;
/** At least, with the end of an arrow. */
const STORAGE = 24;
const [DIM, BOLD] = ['2', '1'];
const COLOURS = { accepted: '32', stale: '7;31', refused: '31', answered: DIM, lost: DIM };
const LINES: Partial<Record<Fate, string>> = { stale: '═', answered: '┄' };
const HUES = ['34', '35', '33', '36'];

type Grid = {
  readonly width: number;
  readonly owner: number;
  /** The width of each of the workers. */
  readonly each: number;
  readonly workers: readonly (Lane & { readonly x: number; readonly hue: string })[];
  readonly storage: number;
};

function layout({ workers, owners }: Lanes, width: number): Grid {
  const names = workers.map(({ who }) => [...who].length);
  const owner = owners === undefined ? 0 : Math.min(Math.max(6, ...names) + 2, 14);
  const each = Math.min(Math.floor((width - TIME - owner - STORAGE) / workers.length), 30);
  const places = workers.map((lane, index) => {
    return { ...lane, x: TIME + owner + index * each, hue: HUES[index % HUES.length] ?? '' };
  });
  const storage = TIME + owner + workers.length * each + 2;
  return { width, owner, each, workers: places, storage };
}

function header({ server }: Lanes, { width, owner, each, workers, storage }: Grid): Row {
  const row = new Row(width);
  row.put(0, 'seconds', DIM);
  if (owner > 0) row.put(TIME, server, BOLD);
  for (const { who, x, hue } of workers) row.put(x, clip(who, each - 2), `1;${hue}`);
  row.put(storage, 'storage', BOLD);
  return row;
}

/** What goes on in each lane at the mark of this index. */
function row(time: string, index: number, { width, workers }: Grid): Row {
  const row = new Row(width);
  row.put(0, time, DIM);
  for (const { x, hue, waits, beliefs, faults } of workers) {
    const now = <T>(spans: readonly Span<T>[]) =>
      spans.find(({ from, to }) => from <= index && index < to)?.is;
    const lock = { true: '┃', false: '╎', undefined: now(waits) ? '·' : ' ' }[`${now(beliefs)}`];
    row.put(x, `${lock}${now(faults) ? '░' : ' '}`, hue);
  }
  return row;
}

function tell(row: Row, mark: Mark, index: number, story: Lanes, grid: Grid): void {
  if (mark.what === 'owner') {
    const owner = mark.owner === undefined ? '(free)' : (mark.owner.who ?? '(unknown)');
    row.put(TIME, clip(owner, grid.owner - 2));
    return;
  }
  const { who } = 'message' in mark ? mark.message : mark;
  const x = (grid.workers.find((lane) => lane.who === who)?.x ?? 0) + 3;
  if (!('message' in mark)) {
    row.put(x, clip(said(mark, ' #'), row.free(x) - 1));
    return;
  }
  const { op, val, fate } = mark.message;
  const lands = mark.what === 'lands' ? mark : directly(story, index);
  const color = lands === undefined ? DIM : COLOURS[fate];
  if (who !== undefined) {
    const label = mark.what === 'sends' ? said(mark, ' #') : `… ${op} ${val}`.trim();
    const line = row.put(x, clip(label, grid.each - 3)) + 1;
    const head = fate === 'refused' ? '┤' : '▸';
    if (lands === undefined) row.put(line, fate === 'lost' ? '─ no answer' : '─ …', color);
    else row.line(line, grid.storage - 2, LINES[fate] ?? '─', head, color);
  }
  if (lands !== undefined) row.put(grid.storage, outcome(mark.message), color);
}

function outcome({ key, val, fate, reason }: Message): string {
  if (fate === 'refused') return `✗ ${shortReason(reason)}`;
  const value = `${clip(key, 12)} = ${clip(val, 12)}`;
  if (fate === 'stale') return `! ${value}, stale`;
  return fate === 'accepted' ? `✓ ${value}` : '';
}

function key({ server, marks }: Lanes): string {
  const stale = marks.some((mark) => mark.what === 'lands' && mark.message.fate === 'stale');
  return (
    `┃ holds the lock  ╎ believes so, but ${server} has freed it  ░ fault  · waits  # token` +
    (stale ? `  ! ${STALE}` : '')
  );
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

  /** Returns where the letters end. Those that do not fit are left out. */
  put(x: number, text: string, color = ''): number {
    const letters = [...plain(text)].slice(0, this.#cells.length - x);
    this.#cells.splice(x, letters.length, ...letters.map((letter) => ({ letter, color })));
    return x + letters.length;
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
    this.put(to, head, color);
  }

  print(color: boolean): string {
    const end = this.#cells.findLastIndex(({ letter }) => letter !== ' ') + 1;
    const cells = this.#cells.slice(0, end);
    return cells
      .map(({ letter, color: of }, index) => {
        if (!color || of === '') return letter;
        const [before, after] = [cells[index - 1]?.color, cells[index + 1]?.color];
        return `${of === before ? '' : `\u001b[${of}m`}${letter}${of === after ? '' : '\u001b[0m'}`;
      })
      .join('');
  }
}
