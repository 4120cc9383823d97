/**
 * The token that lets clients in, as storage and its clients read it from a file.
 */
import { readFileSync } from 'node:fs';

/**
 * The file's text without the space around it. Throws a RangeError when that is empty or cannot be
 * sent in an HTTP header, and the system's error when the file cannot be read.
 */
export function readAuthToken(file: string): string {
  const token = readFileSync(file, 'utf8').trim();
  if (/^[!-~]+$/.test(token)) return token;
  throw new RangeError(
    `expected ${file} to hold one token of visible ASCII characters, got ${token ? 'others' : 'nothing'}`,
  );
}
