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

export function path(of: string, d: string, rest = ''): string {
  return `<path class="${of}" d="${d}"${rest}/>`;
}

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
