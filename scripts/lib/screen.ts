// What several programs print, on one screen: each line behind the padded, coloured label of the
// program it comes from, between narration of the story they play.

import type { WriteStream } from 'node:tty';

type Output = Pick<NodeJS.WritableStream, 'write'> & Partial<Pick<WriteStream, 'isTTY'>>;

export class Screen<Label extends string> {
  readonly #output: Output;
  readonly #labels: readonly Label[];
  readonly #colourful: boolean;

  constructor(output: Output, labels: readonly Label[], env = process.env) {
    this.#output = output;
    this.#labels = labels;
    this.#colourful = wantsColour(output, env);
  }

  narrate(text: string): void {
    this.#output.write(`\n${this.#style(BOLD, text)}\n`);
  }

  show(label: Label, line: string): void {
    const width = Math.max(...this.#labels.map(({ length }) => length));
    const colour = COLOURS[this.#labels.indexOf(label) % COLOURS.length] ?? BOLD;
    this.#output.write(`${this.#style(colour, `${label.padEnd(width)} |`)} ${line}\n`);
  }

  #style(code: number, text: string): string {
    return this.#colourful ? `\x1b[${code}m${text}\x1b[0m` : text;
  }
}

const BOLD = 1;
const COLOURS = [35, 36, 32, 33, 34]; // magenta, cyan, green, yellow, blue

function wantsColour(output: Output, env: NodeJS.ProcessEnv): boolean {
  if (env.NO_COLOR) return false;
  if (env.FORCE_COLOR) return env.FORCE_COLOR !== '0' && env.FORCE_COLOR !== 'false';
  return output.isTTY === true && env.TERM !== 'dumb';
}
