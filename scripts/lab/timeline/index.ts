// Pictures of a history: who believed to hold the lock, who did by its server, what was wrong, and what
// became of every write. The same history makes the same picture, letter by letter.

export { type PictureOptions, svg } from './svg.js';
export { type TextOptions, text } from './text.js';
