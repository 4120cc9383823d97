import { expect, test } from 'vitest';
import { type Event, faults } from './history.js';
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

test('the old holder knows late by what has passed since it could know', () => {
  const history = pause('monotonic');
  const at = (is: (event: Event) => boolean) => history.find(is)?.at ?? Number.NaN;
  const woken = at((event) => event.what === 'fault' && event.over);
  const lost = at(({ what }) => what === 'lost');
  expect(lost).toBeGreaterThan(woken);
  expect(verdict(history).noticedLate).toBeCloseTo(lost - woken);
  // One that was never stopped could know when etcd took the lock; before that, nobody is late.
  const running = history.filter(({ what }) => what !== 'fault');
  expect(verdict(running).noticedLate).toBeCloseTo(lost - at(({ what }) => what === 'left'));
  const early = running.map((event) => (event.what === 'lost' ? { ...event, at: 0 } : event));
  expect(verdict(early).noticedLate).toBe(0);
  // Whose lock was never taken was not late, whatever it was told.
  const kept = history.filter(({ what }) => what !== 'left');
  expect(verdict(kept).noticedLate).toBeUndefined();
});

test('to be told of a loss before anything happened is a false alarm', () => {
  const history = pause('monotonic');
  expect(verdict(history).falseAlarm).toBe(false);
  const early = (event: Event) => (event.what === 'lost' ? { ...event, at: 0 } : event);
  expect(verdict(history.map(early)).falseAlarm).toBe(true);
  // A clock that is set costs nobody a lock.
  const clock = (event: Event) =>
    event.what === 'fault' ? { ...event, fault: faults.ahead } : event;
  expect(verdict(history.map(clock)).falseAlarm).toBe(true);
});

test('tokens and lease IDs are compared as the 64-bit numbers that they are', () => {
  const grant = (who: string, token: bigint, key: string): Event[] => [
    { at: 0, who, what: 'asks' },
    { at: 1, who, what: 'holds', token, key },
  ];
  const seen = (first: Event[], next: Event[]) => {
    const { tokenGrew, leaseGrew } = verdict([...first, ...next]);
    return { tokenGrew, leaseGrew };
  };
  // The lease IDs differ in their last bit.
  const [a, b] = [grant('A', 7n, '/lab/41466fd2f0016e81'), grant('B', 9n, '/lab/41466fd2f0016e80')];
  expect(seen(a, b)).toEqual({ tokenGrew: true, leaseGrew: false });
  expect(seen(grant('A', 9n, '/lab/1'), grant('B', 7n, '/lab/2'))).toEqual({
    tokenGrew: false,
    leaseGrew: true,
  });
});
