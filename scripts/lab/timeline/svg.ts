// A timeline as a picture, in the manner of the figures on fencing tokens in Kleppmann's "How to do
// distributed locking", drawn by our own means: the lock service on top, storage at the bottom, time
// from left to right. The file stands alone, as an <img> has to: no script, no font, no CSS variable,
// and a background of its own, so that it can be read on any page, light or dark.

import type { Event } from '../history.js';
import { captions, clip, name, STALE, seconds } from './captions.js';
import { type Claim, columns } from './columns.js';
import { type Lanes, lanes, type Mark, type Span } from './lanes.js';
import { HUES, paint } from './palette.js';
import { badge, escapeXml, label, measure, n, path, rect } from './shapes.js';

export type PictureOptions = {
  readonly title: string;
  /** What the lock's own server is called. Default `etcd`. */
  readonly server?: string;
};

export function svg(history: readonly Event[], { title, server }: PictureOptions): string {
  const story = lanes(history, server);
  const plan = layout(story, WIDTH);
  const width = Math.ceil(plan.end + MARGIN);
  const height = plan.axis + 82;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}" role="img" font-family="${FONTS}">`,
    `<title>${escapeXml(title)}</title>`,
    paint(),
    rect('panel', [0.5, 0.5, width - 1, height - 1], 10),
    label(clip(title, 90), MARGIN, 38, { size: 18, of: 'ink bold', full: title }),
    ...grounds(story, plan),
    ...states(story, plan),
    ...story.marks.flatMap((mark, index) => arrow(mark, index, story, plan)),
    ...axis(story, plan),
    ...cuts(plan),
    ...words(story, plan),
    ...legend(story, plan.axis + 58),
    '</svg>',
    '',
  ].join('\n');
}

const WIDTH = 1200;
const MARGIN = 28;
const TOP = 72;
const LANE = 88;
const GAP = 10;
const OWNER = 42;
/** Between the last worker and storage: where messages travel. */
const WIRE = 46;
const STORAGE = 76;
/** Within a worker's lane: where its bar is. */
const BAR = { top: 30, height: 26 };
const FONTS = 'system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif';

type Plan = ReturnType<typeof layout>;

/** `xs`: of each mark, and of the end. `tops`: of the workers' lanes. All others: from above. */
function layout(story: Lanes, width: number) {
  const heads = ['storage', story.server, ...story.workers.map(({ who }) => name(who))];
  const left = MARGIN + 14 + Math.max(...heads.map((head) => measure(head, 14))) + 22;
  const first = TOP + (story.owners === undefined ? 0 : OWNER + GAP);
  const tops = new Map(story.workers.map(({ who }, index) => [who, first + index * (LANE + GAP)]));
  const wire = first + story.workers.length * (LANE + GAP) - GAP;
  const storage = wire + WIRE;
  const moments = story.marks.map((mark) => ({ at: mark.at, claims: claims(mark, story) }));
  const { xs, cuts, end: needed } = columns(moments, left, width - MARGIN);
  const end = Math.max(needed, width - MARGIN);
  const axis = storage + STORAGE + 18;
  return { left, xs: [...xs, end], end, cuts, tops, owner: TOP, wire, storage, axis };
}

/** The room that a mark needs, row by row; what {@link words} writes has to fit in. */
function claims(mark: Mark, story: Lanes): Claim[] {
  const rows = captions(mark).map(({ row, dx, text, of }): Claim => {
    return [row, 0, dx + measure(text, undefined, of?.includes('bold'))];
  });
  // A bar begins or ends only where the words in it have ended.
  if (mark.what === 'owner') rows.push(['owner', 0, 0]);
  if ('who' in mark) rows.push([`bar ${mark.who}`, 0, 0]);
  if (mark.what === 'fault') rows.push([`above ${mark.who}`, 0, 0], [`below ${mark.who}`, 0, 0]);
  if (mark.what === 'sends') {
    const workers = story.workers.map(({ who }) => who);
    for (const who of workers.slice(workers.indexOf(mark.message.who ?? '') + 1)) {
      for (const row of ['above', 'bar', 'below']) rows.push([`${row} ${who}`, -5, 5]);
    }
  }
  if (mark.what === 'lands') {
    rows.push(['wire', -10, mark.message.fate === 'refused' ? 34 : 10], ['outcome', -11, 11]);
  }
  return rows;
}

function words(story: Lanes, { xs, tops, owner, storage }: Plan): string[] {
  const baseline = (row: string) => {
    const [place = '', ...who] = row.split(' ');
    const top = tops.get(who.join(' ')) ?? 0;
    const ys = { owner: owner + 26, outcome: storage + 22, value: storage + 58 };
    const inLane = { above: top + 20, bar: top + BAR.top + 17, below: top + 75 };
    return { ...ys, ...inLane }[place] ?? 0;
  };
  return story.marks.flatMap((mark, index) =>
    captions(mark).map(({ row, dx, text, of = '', full = '' }) => {
      const halo = /^(above|below) /.test(row) ? ' halo' : '';
      return label(text, (xs[index] ?? 0) + dx, baseline(row), { of: of + halo, full });
    }),
  );
}

/** The lanes and their names. */
function grounds({ server, owners, workers }: Lanes, plan: Plan): string[] {
  const ground = (text: string, top: number, height: number, of: string) => [
    rect('lane', [MARGIN - 8, top, plan.end - MARGIN + 16, height], 6),
    label(name(text), MARGIN + 6, top + height / 2 + 5, { size: 14, of: `bold ${of}`, full: text }),
  ];
  return [
    ...(owners === undefined ? [] : ground(server, plan.owner, OWNER, 'ink')),
    ...workers.flatMap(({ who }, index) =>
      ground(who, plan.tops.get(who) ?? 0, LANE, `name${index % HUES}`),
    ),
    ...ground('storage', plan.storage, STORAGE, 'ink'),
  ];
}

/** Who held the lock, who believed to, what was wrong, what is stored. */
function states({ workers, owners = [], marks }: Lanes, { xs, tops, owner, storage, end }: Plan) {
  const hue = (of: string | undefined) => {
    const index = workers.findIndex(({ who }) => who === of);
    return index < 0 ? 'nobody' : `hue${index % HUES}`;
  };
  const span = (of: string, { from, to }: Span<unknown>, y: number, height: number) => {
    const x = xs[from] ?? 0;
    return rect(of, [x, y, Math.max((xs[to] ?? 0) - x, 1), height], 4);
  };
  const writes = marks.flatMap((mark, index) => {
    if (mark.what !== 'lands' || !/accepted|stale/.test(mark.message.fate)) return [];
    return [{ x: xs[index] ?? 0, stale: mark.message.fate === 'stale' }];
  });
  return [
    ...owners.map((held) => span(`${hue(held.is.who)} sure`, held, owner + 8, OWNER - 16)),
    ...workers.flatMap(({ who, waits, beliefs, faults }) => {
      const top = tops.get(who) ?? 0;
      const y = top + BAR.top;
      return [
        ...waits.map(({ from, to }) => {
          const line = `M${n(xs[from] ?? 0)} ${y + BAR.height / 2}H${n(xs[to] ?? 0)}`;
          return path(`${hue(who)} wait`, line);
        }),
        ...beliefs.map((held) =>
          span(`${hue(who)} ${held.is ? 'sure' : 'belief'}`, held, y, BAR.height),
        ),
        ...['fault', 'fault-edge'].flatMap((of) =>
          faults.map((fault) => span(of, fault, top + 3, LANE - 6)),
        ),
      ];
    }),
    ...writes.flatMap(({ x, stale }, index) => {
      const until = (writes[index + 1]?.x ?? end + 3) - 3;
      const value = (of: string) => rect(of, [x, storage + 42, until - x, 24], 4);
      return stale ? [value('value'), value('damage')] : [value('value')];
    }),
  ];
}

/** A message's way: down from its sender, over the wire, and back if it is refused. */
function arrow(mark: Mark, index: number, { marks }: Lanes, plan: Plan): string[] {
  const { xs, tops, wire, storage } = plan;
  const message = 'message' in mark ? mark.message : undefined;
  const sent = message?.who !== undefined;
  // Drawn once: where it was sent, or where it came from nowhere.
  if (message === undefined || (mark.what === 'lands' && sent)) return [];
  const { fate, op } = message;
  const x = xs[index] ?? 0;
  const to = xs[marks.findIndex((lands) => lands.what === 'lands' && lands.message === message)];
  const y = storage + 18;
  const drawn = [];
  if (sent) {
    const from = (tops.get(message.who ?? '') ?? 0) + BAR.top + BAR.height;
    // From column to column, as if the line were bent.
    const middle = (wire + storage + 6) / 2;
    const over = `V${wire}C${n(x)} ${middle} ${n(to ?? x)} ${middle} ${n(to ?? x)} ${storage + 6}`;
    const line = `M${n(x)} ${from}${to === undefined ? `V${wire + WIRE / 2}` : over}`;
    const head = fate === 'refused' || fate === 'lost' ? '' : fate;
    drawn.push(path('casing', line), path(`${fate} ${op} line`, line, head));
    drawn.push(rect(`${fate} solid`, [x - 3, from - 3, 6, 6], 3));
  }
  if (to === undefined) {
    drawn.push(label('?', x + 6, wire + WIRE / 2 + 4, { of: 'bold', full: 'no answer' }));
  } else if (fate !== 'answered' && fate !== 'lost') {
    const back = `M${n(to + 8)} ${y - 11}c5 -19 10 -25 22 -33`;
    if (fate === 'refused' && sent) drawn.push(path('refused back line', back, 'refused'));
    drawn.push(badge(fate, to, y));
  }
  return [`<g class="message ${op} ${fate}">${drawn.join('')}</g>`];
}

/** A gap through all lanes: here time was left out. */
function cuts({ cuts, axis }: Plan): string[] {
  return cuts.flatMap(({ x, wait }) => [
    rect('cut', [x - 4, TOP - 6, 8, axis - TOP + 11], 0),
    label(`${seconds(wait)} later`, x, TOP - 12, { of: 'italic', middle: true }),
  ]);
}

/** Moments rather than a scale, which there is none of: crowded moments are drawn apart. */
function axis({ marks }: Lanes, { xs, left, end, axis: y }: Plan): string[] {
  let [free, last] = [0, ''];
  const moments = marks.flatMap(({ at }, index) => {
    const [x, text] = [xs[index] ?? 0, seconds(at, 2)];
    const room = measure(text, undefined, false) / 2 + 3;
    if (text === last || x - room < free) return [];
    [free, last] = [x + room, text];
    return [path('axis', `M${n(x)} ${y}v5`), label(text, x, y + 20, { middle: true })];
  });
  return [path('axis', `M${n(left)} ${y}H${n(end)}`), ...moments];
}

/** Only what is to be seen. */
function legend({ server, workers, owners, marks }: Lanes, y: number): string[] {
  const fates = new Set(marks.map((mark) => (mark.what === 'lands' ? mark.message.fate : '')));
  const sample = (of: string) => (x: number) => rect(of, [x, y - 11, 26, 14], 3);
  const line = (of: string, head: string) => (x: number) =>
    path(`${of} line`, `M${x} ${y - 4}h24`, head);
  const items: [shown: boolean, text: string, draw: (x: number) => string][] = [
    [true, owners === undefined ? 'believes it holds' : 'holds the lock', sample('nobody sure')],
    [
      workers.some(({ beliefs }) => beliefs.some(({ is }) => !is)),
      `believes so, but ${server} has freed it`,
      sample('nobody belief'),
    ],
    [
      workers.some(({ faults }) => faults.length > 0),
      'fault',
      (x) => sample('fault')(x) + sample('fault-edge')(x),
    ],
    [fates.has('accepted'), 'accepted', line('accepted write', 'accepted')],
    [fates.has('stale'), STALE, (x) => badge('stale', x + 14, y - 5)],
    [fates.has('refused'), 'bounced', line('refused back', 'refused')],
    [fates.has('answered'), 'read', line('answered read', 'answered')],
  ];
  let x = MARGIN;
  return items.flatMap(([shown, text, draw]) => {
    if (!shown) return [];
    const drawn = [draw(x), label(text, x + 34, y, {})];
    x += 34 + measure(text, undefined, false) + 26;
    return drawn;
  });
}
