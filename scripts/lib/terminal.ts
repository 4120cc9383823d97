// A program on a screen, as if in a terminal of its own: its command and its lines are shown as
// they come, and have to be the expected ones, in order and to the letter.

import { describeExit, type Program, type ProgramOptions } from './program.js';
import type { Screen } from './screen.js';

/** A program did not print, or not end, as expected; the message has both. */
export class UnexpectedError extends Error {
  override readonly name = 'UnexpectedError';

  constructor(label: string, expected: string, instead: string) {
    super(`expected of ${label}: ${expected}\n  instead ${instead}`);
  }
}

export class Terminal<P extends Program> implements AsyncDisposable {
  /** Shows `command` as typed and then every line of the program that `start` starts for it. */
  static async open<P extends Program, L extends string>(
    screen: Screen<L>,
    label: L,
    command: string,
    start: (options: ProgramOptions) => P | Promise<P>,
  ): Promise<Terminal<P>> {
    screen.show(label, `$ ${command}`);
    const program = await start({ onLine: (line) => screen.show(label, line) });
    return new Terminal(label, program);
  }

  private constructor(
    private readonly label: string,
    readonly program: P,
  ) {}

  /** Checks the next line, as {@link check}. */
  async prints(expected: string): Promise<string> {
    const line = await this.#next(expected);
    return line === null ? this.#ended(expected) : check(this.label, expected, line);
  }

  /** Checks that it ends without another line, with that exit code. */
  async ends(code = 0): Promise<void> {
    const expected = `to end with exit code ${code}`;
    const line = await this.#next(expected);
    if (line !== null) throw new UnexpectedError(this.label, expected, `it printed: ${line}`);
    if ((await this.program.exited).code !== code) await this.#ended(expected);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.program[Symbol.asyncDispose]();
  }

  async #next(expected: string): Promise<string | null> {
    return await this.program.nextLine().catch(() => {
      throw new UnexpectedError(this.label, expected, 'nothing came for 10 s');
    });
  }

  async #ended(expected: string): Promise<never> {
    const exit = describeExit(await this.program.exited);
    throw new UnexpectedError(this.label, expected, `it ended (${exit})`);
  }
}

/**
 * Checks a line against what is expected of `label`, to the letter but for `<time>`, `<hex>` and
 * other words in angle brackets, which stand for what varies. Returns what `<hex>` stands for.
 */
export function check(label: string, expected: string, line: string): string {
  const pattern = expected
    .replace(/[^\w\s<>]/g, '\\$&')
    .replaceAll('<time>', '\\d{4}/\\d\\d/\\d\\d \\d\\d:\\d\\d:\\d\\d')
    .replaceAll('<hex>', '([0-9a-f]+)')
    .replace(/<\w+>/g, '.+');
  const match = new RegExp(`^${pattern}$`).exec(line);
  if (!match) throw new UnexpectedError(label, expected, `it printed: ${line}`);
  return match[1] ?? '';
}
