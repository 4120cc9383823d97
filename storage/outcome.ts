/**
 * What became of one request: the record that the log, the metrics and the page are made of.
 */

export type Outcome = {
  /** Wall-clock milliseconds, to show. */
  readonly at: number;
  /** Empty when the request was not understood. */
  readonly op: 'read' | 'write' | '';
  readonly key: string;
  /** What was to be written. */
  readonly val: string;
  /** The version that came with it. */
  readonly token: bigint;
  /** Whether the rule accepted the token: it did not look at that of every read. */
  readonly fenced: boolean;
  /** `refused` by the rule, `failed` for any other reason, `invalid` when it was not understood. */
  readonly result: 'accepted' | 'refused' | 'not found' | 'failed' | 'invalid';
  /** Why, when it was refused, failed or is invalid; else empty. */
  readonly reason: string;
  /** From the moment that its body was there. */
  readonly seconds: number;
};

/** One line for each outcome, safe to print; by name, as the option offers them. */
export const formats = { text, json } satisfies Record<string, (outcome: Outcome) => string>;

function text({ at, op, key, token, result, reason }: Outcome): string {
  const what = op && `${op} ${JSON.stringify(cut(key, 64))} with token ${token}: `;
  return printable(`${new Date(at).toISOString()} ${what}${result}${reason && `: ${reason}`}`);
}

/** The token is a string: most JSON parsers would round it. */
function json({ at, op, token, key, result, reason, seconds }: Outcome): string {
  const rest = { op, result, seconds };
  const texts = { key: cut(key), token: `${token}`, reason: cut(reason) };
  return JSON.stringify({ at: new Date(at).toISOString(), ...rest, ...texts }).replace(
    CONTROL,
    (c) => c.replace(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );
}

const PRINTED = 256;
const CONTROL = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** The first characters as one line that cannot steer a terminal or pass for another. */
export function printable(line: string): string {
  return cut(line).replace(CONTROL, (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`);
}

function cut(text: string, length = PRINTED): string {
  return text.length > length ? `${text.slice(0, length)}...` : text;
}
