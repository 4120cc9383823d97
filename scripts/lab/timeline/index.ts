// Pictures of a history: who believed to hold the lock, who did by its server, what was wrong, and what
// became of every write. The same history makes the same picture, letter by letter.

import type { Event } from '../history.js';
import { palettes } from './palette.js';
import { escapeXml } from './shapes.js';
import { type PictureOptions, svg } from './svg.js';

export { type PictureOptions, svg } from './svg.js';
export { type TextOptions, text } from './text.js';

/** The picture as a page; it needs no script and nothing from elsewhere. */
export function html(history: readonly Event[], options: PictureOptions): string {
  const page = (scheme: keyof typeof palettes) => `body{background:${palettes[scheme].page}}`;
  return [
    '<!doctype html>',
    '<html lang="en">',
    '<meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width">',
    '<meta name="color-scheme" content="light dark">',
    `<title>${escapeXml(options.title)}</title>`,
    '<style>',
    'body{margin:24px;overflow-x:auto}svg{display:block;margin:auto}',
    `${page('light')}@media(prefers-color-scheme:dark){${page('dark')}}`,
    '</style>',
    `${svg(history, options)}</html>`,
    '',
  ].join('\n');
}
