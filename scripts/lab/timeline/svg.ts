// A timeline as a picture, in the manner of the figures on fencing tokens in Kleppmann's "How to do
// distributed locking", drawn by our own means: the lock service on top, storage at the bottom, time
// from left to right. The file stands alone, as an <img> has to: no script, no font, no CSS variable,
// and a background of its own, so that it can be read on any page, light or dark.

import type { Event } from '../history.js';
import { captions, name } from './captions.js';
import { columns } from './columns.js';
import { clip, type Lane, type Lanes, lanes, type Mark, seconds } from './lanes.js';
import { palettes, style } from './palette.js';
import { escapeXml, group, label, measure, n, path, rect } from './shapes.js';

export type PictureOptions = {
  readonly title: string;
  /** What the lock's own server is called. Default `etcd`. */
  readonly server?: string;
};

export function svg(history: readonly Event[], { title, server }: PictureOptions): string {
  const story = lanes(history, server);
  const plan = layout(story, WIDTH);
  const width = Math.max(WIDTH, Math.ceil(plan.end + MARGIN));
  const height = plan.axis + 82;
  const heading = clip(title, 90);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}" role="img" font-family="${FONTS}">`,
    `<title>${escapeXml(title)}</title>`,
    `<style>${style()}</style>`,
    '<defs>',
    '<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" ' +
      'patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern>',
    ...['accepted', 'refused', 'answered'].map(
      (name) =>
        `<marker id="${name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" ` +
        `markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">` +
        `<path class="${name} solid" d="M0 .5L8 4L0 7.5Z"/></marker>`,
    ),
    '</defs>',
    rect('panel', 0.5, 0.5, width - 1, height - 1, 10),
    label(heading, MARGIN, 38, { size: 18, of: 'ink bold', full: title }),
    ...grounds(story, plan),
    ...states(story, plan),
    ...story.marks.flatMap((mark, index) => arrow(mark, index, story, plan)),
    ...plan.cuts.map(({ x }) => cut(x, TOP - 6, plan.axis + 5)),
    ...words(story, plan),
    ...axis(story, plan),
    ...legend(story, plan.axis + 58),
    '</svg>',
    '',
  ].join('\n');
}

const WIDTH = 1200;
const MARGIN = 28;
const TOP = 64;
const LANE = 88;
const GAP = 10;
const OWNER = 42;
/** Between the last worker and storage: where messages travel. */
const WIRE = 46;
const STORAGE = 76;
/** Within a worker's lane: where its bar is. */
const BAR = { top: 30, height: 26 };
const FONTS = 'system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif';

type Plan = {
  readonly left: number;
  /** Of each mark, and of the end. */
  readonly xs: readonly number[];
  readonly end: number;
  readonly cuts: readonly { readonly x: number; readonly wait: number }[];
  readonly tops: ReadonlyMap<string, number>;
  readonly owner: number;
  readonly wire: number;
  readonly storage: number;
  readonly axis: number;
};

function layout(story: Lanes, width: number): Plan {
  const heads = ['storage', story.server, ...story.workers.map(({ who }) => name(who))];
  const left = MARGIN + 14 + Math.max(...heads.map((head) => measure(head, 14))) + 22;
  const first = TOP + (story.owners === undefined ? 0 : OWNER + GAP);
  const tops = new Map(story.workers.map(({ who }, index) => [who, first + index * (LANE + GAP)]));
  const wire = first + story.workers.length * (LANE + GAP) - GAP;
  const storage = wire + WIRE;
  const {
    xs,
    end: needed,
    cuts,
  } = columns(
    story.marks.map((mark) => ({ at: mark.at, claims: claims(mark, story) })),
    left,
    width - MARGIN,
  );
  const end = Math.max(needed, width - MARGIN);
  const axis = storage + STORAGE + 18;
  return { left, xs: [...xs, end], end, cuts, tops, owner: TOP, wire, storage, axis };
}

/** The room that a mark needs, row by row; what {@link words} writes has to fit in. */
function claims(mark: Mark, story: Lanes) {
  const rows: { row: string; left: number; right: number }[] = [];
  const claim = (row: string, left: number, right: number) => rows.push({ row, left, right });
  for (const { row, dx, text, of } of captions(mark, story)) {
    claim(row, 0, dx + measure(text, undefined, of?.includes('bold')));
  }
  if ('who' in mark) {
    // A bar begins or ends only where the words in it have ended.
    claim(`bar ${mark.who}`, 0, 0);
    if (mark.what === 'fault') {
      for (const row of ['above', 'below']) claim(`${row} ${mark.who}`, 0, 0);
    }
  }
  if (mark.what === 'owner') claim('owner', 0, 0);
  if (mark.what === 'sends') {
    const workers = story.workers.map(({ who }) => who);
    for (const who of workers.slice(workers.indexOf(mark.message.who ?? '') + 1)) {
      for (const row of ['above', 'bar', 'below']) claim(`${row} ${who}`, -5, 5);
    }
  }
  if (mark.what === 'lands') {
    claim('wire', -10, mark.message.accepted ? 10 : 34);
    claim('outcome', -11, 11);
  }
  return rows;
}

function words(story: Lanes, plan: Plan): string[] {
  return story.marks.flatMap((mark, index) =>
    captions(mark, story).map(({ row, dx, text, of = '', full = '' }) =>
      label(text, (plan.xs[index] ?? 0) + dx, baseline(row, plan), {
        of: /^(above|below) /.test(row) ? `${of} halo` : of,
        full,
      }),
    ),
  );
}

function baseline(row: string, { tops, owner, storage }: Plan): number {
  if (row === 'owner') return owner + 26;
  if (row === 'outcome') return storage + 22;
  if (row === 'value') return storage + 58;
  const [place = '', ...who] = row.split(' ');
  const offset = { above: 20, bar: BAR.top + 17, below: 75 }[place] ?? 0;
  return (tops.get(who.join(' ')) ?? 0) + offset;
}

/** The lanes and their names. */
function grounds({ server, owners, workers }: Lanes, plan: Plan): string[] {
  const ground = (text: string, top: number, height: number, of: string, full = text) => [
    rect('lane', MARGIN - 8, top, plan.end - MARGIN + 16, height, 6),
    label(name(text), MARGIN + 6, top + height / 2 + 5, { size: 14, of: `bold ${of}`, full }),
  ];
  return [
    ...(owners === undefined ? [] : ground(server, plan.owner, OWNER, 'ink')),
    ...workers.flatMap(({ who }, index) =>
      ground(who, plan.tops.get(who) ?? 0, LANE, `name${index % HUES}`),
    ),
    ...ground('storage', plan.storage, STORAGE, 'ink'),
  ];
}

const HUES = palettes.light.workers.length;

/** Who held the lock, who believed to, what was wrong, what is stored. */
function states(story: Lanes, plan: Plan): string[] {
  const hue = (who: string | undefined) => {
    const index = story.workers.findIndex((lane) => lane.who === who);
    return index < 0 ? 'nobody' : `hue${index % HUES}`;
  };
  const span = (of: string, { from, to }: { from: number; to: number }, y: number, h: number) => {
    const x = plan.xs[from] ?? 0;
    return rect(of, x, y, Math.max((plan.xs[to] ?? 0) - x, 1), h, 4);
  };
  const owners = story.owners ?? [];
  return [
    ...owners.map((owner) => span(`${hue(owner.who)} sure`, owner, plan.owner + 8, OWNER - 16)),
    ...story.workers.flatMap((lane) => {
      const top = plan.tops.get(lane.who) ?? 0;
      const [y, of] = [top + BAR.top, hue(lane.who)];
      return [
        ...lane.waits.map(({ from, to }) => {
          const [x, end] = [plan.xs[from] ?? 0, plan.xs[to] ?? 0];
          return path(`${of} wait`, `M${n(x)} ${y + BAR.height / 2}H${n(end)}`);
        }),
        ...beliefs(lane, story).map((belief) =>
          span(`${of} ${belief.right ? 'sure' : 'belief'}`, belief, y, BAR.height),
        ),
        ...lane.faults.flatMap((fault) => [
          span('fault', fault, top + 3, LANE - 6),
          span('fault-edge', fault, top + 3, LANE - 6),
        ]),
      ];
    }),
    ...stored(story, plan),
  ];
}

/** What a worker believed, in pieces that were right or not; right, if nobody can know. */
function beliefs({ who, beliefs }: Lane, { owners }: Lanes) {
  return beliefs.flatMap(({ from, to }) => {
    if (owners === undefined) return [{ from, to, right: true }];
    const right = owners
      .filter((owner) => owner.who === who && owner.from < to && from < owner.to)
      .map((owner) => ({ from: Math.max(owner.from, from), to: Math.min(owner.to, to) }));
    const edges = [from, ...right.flatMap((piece) => [piece.from, piece.to]), to];
    return edges.flatMap((edge, index) => {
      const next = edges[index + 1] ?? edge;
      return edge < next ? [{ from: edge, to: next, right: index % 2 === 1 }] : [];
    });
  });
}

function stored({ marks }: Lanes, { xs, end, storage }: Plan): string[] {
  const changes = marks.flatMap((mark, index) => {
    if (mark.what !== 'lands' || mark.message.op !== 'write') return [];
    return mark.message.accepted ? [xs[index] ?? 0] : [];
  });
  return changes.map((x, index) => {
    const next = changes[index + 1];
    return rect('value', x, storage + 42, (next === undefined ? end : next - 3) - x, 24, 4);
  });
}

/** A message's way: down from its sender, over the wire, and back if it is refused. */
function arrow(mark: Mark, index: number, story: Lanes, plan: Plan): string[] {
  const message = 'message' in mark ? mark.message : undefined;
  const sent = message?.who !== undefined;
  // Drawn once: where it was sent, or where it came from nowhere.
  if (message === undefined || (mark.what === 'lands' && sent)) return [];
  const landing = story.marks.findIndex((to) => to.what === 'lands' && to.message === message);
  const [x, to] = [plan.xs[index] ?? 0, plan.xs[landing]];
  const { accepted, op } = message;
  const kind =
    accepted === undefined
      ? 'lost'
      : !accepted
        ? 'refused'
        : op === 'read'
          ? 'answered'
          : 'accepted';
  const from = (plan.tops.get(message.who ?? '') ?? 0) + BAR.top + BAR.height;
  const { wire, storage } = plan;
  const way =
    to === undefined ? `V${wire + WIRE / 2}` : `V${wire}${over(x, to, wire, storage + 6)}`;
  const line = `M${n(x)} ${from}${way}`;
  const drawn = [];
  if (sent) {
    const head = /accepted|answered/.test(kind) ? ` marker-end="url(#${kind})"` : '';
    drawn.push(path('casing', line), path(`${kind} ${op} line`, line, head));
    drawn.push(`<circle class="${kind} solid" cx="${n(x)}" cy="${from}" r="3"/>`);
  }
  if (to === undefined) return [group(`message ${op} ${kind}`, [...drawn, unknown(x, wire)])];
  const y = storage + 18;
  if (kind === 'refused' && sent) {
    const back = `M${n(to + 8)} ${y - 11}C${n(to + 13)} ${y - 30} ${n(to + 18)} ${y - 36} ${n(to + 30)} ${y - 44}`;
    drawn.push(path('refused back line', back, ' marker-end="url(#refused)"'));
  }
  if (kind === 'refused') {
    drawn.push(rect('refused solid', to - 8.5, y - 8.5, 17, 17, 3));
    drawn.push(path('sign', `M${n(to - 4)} ${y - 4}l8 8m0 -8l-8 8`));
  } else if (op === 'write') {
    drawn.push(`<circle class="accepted solid" cx="${n(to)}" cy="${y}" r="9"/>`);
    drawn.push(path('sign', `M${n(to - 4.2)} ${y + 0.4}l3 3.4l5.4 -7`));
  }
  return [group(`message ${op} ${kind}`, drawn)];
}

/** From column to column, as if the line were bent. */
function over(x: number, to: number, top: number, bottom: number): string {
  const middle = n((top + bottom) / 2);
  return `C${n(x)} ${middle} ${n(to)} ${middle} ${n(to)} ${n(bottom)}`;
}

function unknown(x: number, wire: number): string {
  return label('?', x + 6, wire + WIRE / 2 + 4, { of: 'bold', full: 'no answer' });
}

/** Torn paper: here time was left out. */
function cut(x: number, top: number, bottom: number): string {
  const down = Array.from({ length: Math.ceil((bottom - top) / 6) }, (_, index) => index);
  const edge = (side: number) =>
    down.map((index) => `${n(x + side + (index % 2) * 3 - 1.5)},${n(top + index * 6)}`);
  return `<polygon class="cut" points="${[...edge(-4), ...edge(4).reverse()].join(' ')}"/>`;
}

/** Moments rather than a scale, which there is none of: crowded moments are drawn apart. */
function axis({ marks }: Lanes, { xs, left, end, cuts, axis: y }: Plan): string[] {
  const taken: { from: number; to: number }[] = [];
  const fits = (from: number, to: number) =>
    taken.every((other) => to < other.from || other.to < from) && taken.push({ from, to }) > 0;
  const said = new Set<string>();
  const drawn = [path('axis', `M${n(left)} ${y}H${n(end)}`)];
  for (const { x, wait } of cuts) {
    const text = `${seconds(wait)} later`;
    const width = measure(text, undefined, false);
    fits(x - width / 2, x + width / 2);
    drawn.push(label(text, x - width / 2, y + 20, { of: 'italic' }));
  }
  const after = marks.flatMap((_, index) =>
    cuts.some(({ x }) => (xs[index - 1] ?? x) < x && x < (xs[index] ?? x)) ? [index] : [],
  );
  for (const index of [0, ...after, ...marks.keys()]) {
    const [mark, x = 0] = [marks[index], xs[index]];
    if (mark === undefined) continue;
    const text = seconds(mark.at, 2);
    const width = measure(text, undefined, false);
    if (said.has(text) || !fits(x - width / 2 - 14, x + width / 2 + 14)) continue;
    said.add(text);
    drawn.push(path('axis', `M${n(x)} ${y}v5`), label(text, x, y + 20, { middle: true }));
  }
  return drawn;
}

/** Only what is to be seen. */
function legend(story: Lanes, y: number): string[] {
  const { server, workers, owners, marks } = story;
  const wrong = workers.some((lane) => beliefs(lane, story).some(({ right }) => !right));
  const has = (what: 'accepted' | 'refused') =>
    marks.some((mark) => mark.what === 'lands' && mark.message.accepted === (what === 'accepted'));
  const sample = (of: string) => (x: number) => rect(of, x, y - 11, 26, 14, 3);
  const items: [shown: boolean, text: string, draw: (x: number) => string][] = [
    [true, owners === undefined ? 'believes it holds' : 'holds the lock', sample('nobody sure')],
    [wrong, `believes so, but ${server} has freed it`, sample('nobody belief')],
    [
      workers.some(({ faults }) => faults.length > 0),
      'fault',
      (x) => sample('fault')(x) + sample('fault-edge')(x),
    ],
    [
      has('accepted'),
      'accepted',
      (x) => path('accepted write line', `M${x} ${y - 4}h24`, ' marker-end="url(#accepted)"'),
    ],
    [
      has('refused'),
      'bounced',
      (x) => path('refused back line', `M${x} ${y - 4}h24`, ' marker-end="url(#refused)"'),
    ],
    [
      marks.some((mark) => mark.what === 'sends' && mark.message.op === 'read'),
      'read',
      (x) => path('answered read line', `M${x} ${y - 4}h26`),
    ],
  ];
  let x = MARGIN;
  return items.flatMap(([shown, text, draw]) => {
    if (!shown) return [];
    const drawn = [draw(x), label(text, x + 34, y, {})];
    x += 34 + measure(text, undefined, false) + 26;
    return drawn;
  });
}
