import { expect, test } from 'vitest';
import { Screen } from './screen.js';

function screen(env: NodeJS.ProcessEnv, isTTY?: true): string {
  let shown = '';
  const output = {
    write: (text: string) => {
      shown += text;
      return true;
    },
    ...(isTTY && { isTTY }),
  };
  const both = new Screen(output, ['long label', 'short'], env);
  both.narrate('Once upon a time');
  both.show('short', 'a line');
  both.show('long label', 'another');
  return shown;
}

const plain = '\nOnce upon a time\nshort      | a line\nlong label | another\n';

test('labels are padded to the same width', () => {
  expect(screen({})).toBe(plain);
});

test('on a terminal the narration is bold and every label has a colour of its own', () => {
  expect(screen({}, true).replaceAll('\x1b', '')).toBe(
    '\n[1mOnce upon a time[0m\n[36mshort      |[0m a line\n[35mlong label |[0m another\n',
  );
});

test.each([
  ['off a terminal', {}, undefined, false],
  ['with NO_COLOR', { NO_COLOR: '1' }, true, false],
  ['with an empty NO_COLOR', { NO_COLOR: '' }, true, true],
  ['on a dumb terminal', { TERM: 'dumb' }, true, false],
  ['with FORCE_COLOR off a terminal', { FORCE_COLOR: '1' }, undefined, true],
  ['with FORCE_COLOR=0', { FORCE_COLOR: '0' }, true, false],
  ['with both', { NO_COLOR: '1', FORCE_COLOR: '1' }, true, false],
] as const)('%s it is in colour or not', (_, env, isTTY, colourful) => {
  expect(screen(env, isTTY) !== plain).toBe(colourful);
});
