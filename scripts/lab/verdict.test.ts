import { expect, test } from 'vitest';
import type { Event } from './history.js';
import { pause } from './timeline/samples.js';
import { verdict } from './verdict.js';

test('a late write that gets in takes an update with it', () => {
  expect(verdict(pause('none'))).toMatchObject({
    lostUpdates: 1,
    staleWrite: 'accepted',
    successor: 'served',
  });
});

test('a late write that is refused takes nothing', () => {
  expect(verdict(pause('monotonic'))).toMatchObject({
    lostUpdates: 0,
    staleWrite: 'refused',
    successor: 'served',
  });
});

test('the times are counted from the fault, and from when etcd took the lock', () => {
  const at = (is: (event: Event) => boolean) => pause('monotonic').find(is)?.at ?? Number.NaN;
  const fault = at(({ what }) => what === 'fault');
  const left = at(({ what }) => what === 'left');
  const seen = verdict(pause('monotonic'));
  expect(seen.takenAfter).toBeCloseTo(left - fault);
  expect(seen.noticedAfter).toBeCloseTo(at(({ what }) => what === 'lost') - left);
  expect(seen.succeededAfter).toBeCloseTo(
    at((event) => event.what === 'holds' && event.who !== 'client 1') - fault,
  );
});

test('who does not know that it lost the lock holds it together with the next one', () => {
  const history = pause('none');
  expect(verdict(history).together).toBe(true);
  const left = history.findIndex(({ what }) => what === 'left');
  const told = { at: history[left]?.at ?? 0, who: 'client 1', what: 'lost', reason: 'expired' };
  expect(verdict(history.toSpliced(left, 0, told as Event)).together).toBe(false);
});
