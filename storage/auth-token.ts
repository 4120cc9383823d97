/**
 * The token that lets clients in, as storage and its clients read it from a file.
 */
import { readFileSync } from 'node:fs';

/**
 * The file's text without the space around it. Throws a RangeError when the file cannot be read, or
 * when that text is empty or cannot be sent in an HTTP header.
 */
export function readAuthToken(file: string): string {
  const token = read(file).trim();
  if (/^[!-~]+$/.test(token)) return token;
  throw new RangeError(
    `expected ${file} to hold one token of visible ASCII characters, got ${token ? 'others' : 'nothing'}`,
  );
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new RangeError(`cannot read ${file}: ${(cause as Error).message}`, { cause });
  }
}
