// The shapes that a picture is made of, as SVG, and how wide a text may be. Nobody can know the fonts
// of whoever looks at it, so that a text is given the room that the widest of them needs.

import { plain } from './lanes.js';

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

export function rect(
  of: string,
  x: number,
  y: number,
  width: number,
  height: number,
  r: number,
): string {
  const box = `x="${n(x)}" y="${n(y)}" width="${n(width)}" height="${n(height)}"`;
  return `<rect class="${of}" ${box} rx="${r}"/>`;
}

export function path(of: string, d: string, rest = ''): string {
  return `<path class="${of}" d="${d}"${rest}/>`;
}

export function group(of: string, drawn: readonly string[]): string {
  return `<g class="${of}">${drawn.join('')}</g>`;
}

/** A tenth of a pixel is enough. */
export function n(value: number): string {
  return String(Math.round(value * 10) / 10);
}

export function escapeXml(text: string): string {
  return plain(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

/** At least what a text takes in any of the fonts. */
export function measure(text: string, size = SIZE, bold = true): number {
  const widths = [...text].map((letter) => {
    if (letter > '\u10ff') return letter === '…' ? 1 : 1.1;
    return WIDTHS.find(([letters]) => letters.test(letter))?.[1] ?? 0.72;
  });
  return size * (bold ? 1 : 0.9) * widths.reduce((sum, width) => sum + width, 0);
}

/** Pixels; of what is not said to be larger. */
const SIZE = 12;

/** Of the widest of the fonts, DejaVu Sans Bold. */
const WIDTHS: [RegExp, number][] = [
  [/[ .,:;·'|!()[\]ijlI-]/, 0.46],
  [/[ftr]/, 0.5],
  [/[mwMW%@]/, 1.11],
  [/[=<>+~&#]/, 0.94],
  [/\p{Lu}/u, 0.86],
];
