// The shapes that a picture is made of, as SVG, and how wide a text may be. Nobody can know the fonts
// of whoever looks at it, so that a text is given the room that the widest of them needs.

export function label(
  text: string,
  x: number,
  y: number,
  { size = SIZE, of = '', full = '', middle = false },
): string {
  const title = full === '' || full === text ? '' : `<title>${escapeXml(full)}</title>`;
  const anchor = middle ? ' text-anchor="middle"' : '';
  return (
    `<text class="${of}" x="${n(x)}" y="${n(y)}" font-size="${size}"${anchor}>` +
    `${title}${escapeXml(text)}</text>`
  );
}

/** `box`: left, top, width, height. */
export function rect(of: string, box: [number, number, number, number], r: number): string {
  const [x, y, width, height] = box.map(n);
  return `<rect class="${of}" x="${x}" y="${y}" width="${width}" height="${height}" rx="${r}"/>`;
}

/** `head`: of an arrow, one of those in palette.ts. */
export function path(of: string, d: string, head = ''): string {
  return `<path class="${of}" d="${d}"${head && ` marker-end="url(#${head})"`}/>`;
}

/** What became of a write: around this point a tick in a circle, a cross in a square, an alarm. */
export function badge(fate: keyof typeof BADGES, x: number, y: number): string {
  const [shape, sign] = BADGES[fate];
  const drawn = path(`${fate} solid`, shape) + path('sign', sign);
  return `<g transform="translate(${n(x)} ${n(y)})">${drawn}</g>`;
}

const BADGES = {
  accepted: ['M-9 0a9 9 0 0 1 18 0a9 9 0 0 1-18 0z', 'M-4.2 .4l3 3.4l5.4-7'],
  refused: ['M-8.5-8.5h17v17h-17z', 'M-4-4l8 8m0-8l-8 8'],
  stale: ['M0-9l10.5 18h-21z', 'M0-3v5m0 3.6v.1'],
} as const;

/** A tenth of a pixel is enough. */
export function n(value: number): string {
  return String(Math.round(value * 10) / 10);
}

export function escapeXml(text: string): string {
  return plain(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

/** Without the letters that a terminal obeys, that turn lines around, that XML cannot have. */
export function plain(text: string): string {
  return text.replace(/[\p{C}\u2028\u2029]/gu, '\ufffd');
}

/** At least what a text takes in any of the fonts. */
export function measure(text: string, size = SIZE, bold = true): number {
  const widths = [...plain(text)].map((letter) => WIDTHS.find(([of]) => of.test(letter))?.[1] ?? 1);
  return size * (bold ? 1 : 0.9) * widths.reduce((sum, width) => sum + width, 0);
}

/** Pixels; of what is not said to be larger. */
const SIZE = 12;

/** Of the widest of the fonts, DejaVu Sans Bold. */
const WIDTHS: [RegExp, number][] = [
  [/[ .,:;·'|!()[\]ijlI-]/, 0.46],
  [/[ftr]/, 0.5],
  [/[mwMW%@…]|[^\0-\u10ff]/u, 1.11],
  [/[=<>+~&#]/, 0.94],
  [/\p{Lu}/u, 0.86],
  [/./u, 0.72],
];
