// Waits for "any key". On a terminal that is one key, without Enter; on a pipe or a file it is the
// first byte or the end of the input, as upstream's ReadByte. Reading is asynchronous: the lease
// goes on being renewed meanwhile.

import type { ReadStream } from 'node:tty';

/** Standard input, or what stands in for it. */
export type Input = NodeJS.ReadableStream & Partial<Pick<ReadStream, 'isTTY' | 'setRawMode'>>;

/**
 * Resolves at the first key, byte, end or error of `input`; rejects with the signal's reason.
 * A terminal is put into raw mode and back on every way out.
 *
 * In raw mode the terminal sends no signals for Ctrl-C, Ctrl-Z and Ctrl-\; `raise` is called to
 * send them in its place, and SIGHUP when the terminal is gone.
 */
export async function keyPress(
  input: Input,
  signal: AbortSignal,
  raise: (signal: NodeJS.Signals) => void,
): Promise<void> {
  signal.throwIfAborted();
  const raw = (on: boolean) => input.isTTY && input.setRawMode?.(on);
  let undo = () => {};
  try {
    await new Promise<void>((resolve, reject) => {
      // The end of a terminal is no key: it was closed.
      const ended = () => (input.isTTY ? raise('SIGHUP') : resolve());
      const read = (chunk: Buffer | string) => {
        const sent = input.isTTY ? SIGNALS.get(Buffer.from(chunk)[0] ?? 0) : undefined;
        if (!sent) return resolve();
        raw(false);
        raise(sent);
        // Here again after Ctrl-Z and `fg`. After Ctrl-C the signal's abort is on its way.
        raw(true);
      };
      const aborted = () => reject(signal.reason);
      undo = () => {
        input.off('data', read).off('end', ended).off('error', ended).pause();
        signal.removeEventListener('abort', aborted);
      };
      raw(true);
      input.on('data', read).on('end', ended).on('error', ended);
      signal.addEventListener('abort', aborted);
    });
  } finally {
    undo();
    raw(false);
  }
}

/** What a terminal that is not in raw mode makes of these bytes. */
const SIGNALS: ReadonlyMap<number, NodeJS.Signals> = new Map([
  [0x03, 'SIGINT'],
  [0x1a, 'SIGTSTP'],
  [0x1c, 'SIGQUIT'],
]);
