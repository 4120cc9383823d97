// That it waits for what comes, with a time-out, is tested with Program, which does so by it.

import { expect, test } from 'vitest';
import { Lookout } from './lookout.js';

test.each(['before', 'while'])('a signal ends the waiting, aborted %s it lasts', async (when) => {
  const controller = new AbortController();
  if (when === 'before') controller.abort('told to end');
  const lookout = new Lookout();
  const late = () => new Error('late');
  const waiting = lookout.until(() => undefined, 10_000, late, controller.signal);
  controller.abort('told to end');
  await expect(waiting).rejects.toBe('told to end');
});
