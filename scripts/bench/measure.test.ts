// How the benchmarks measure.

import { expect, test } from 'vitest';
import { inTurn, median, quantile, ratio } from './measure.js';

const signal = new AbortController().signal;

test('all take turns, each first as often, and the first rounds are thrown away', async () => {
  const order: string[] = [];
  let count = 0;
  const one = (name: string) => async () => {
    order.push(name);
    return ++count;
  };
  const contestants = { a: one('a'), b: one('b') };
  const figures = await inTurn(contestants, { rounds: 2, warmUp: 1, signal });
  expect(order).toEqual(['a', 'b', 'b', 'a', 'a', 'b']);
  expect(figures).toEqual({ a: [4, 5], b: [3, 6] });
});

test('what gives no figure of its own is timed', async () => {
  const wait = () => new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 20));
  const { wait: figures } = await inTurn({ wait }, { rounds: 2, warmUp: 0, signal });
  expect(figures).toHaveLength(2);
  for (const figure of figures) expect(figure).toBeGreaterThan(15);
});

test('a signal ends it with its reason', async () => {
  const controller = new AbortController();
  const stop = async () => {
    controller.abort('told to');
    return 1;
  };
  const measured = inTurn({ stop }, { rounds: 100, warmUp: 0, signal: controller.signal });
  await expect(measured).rejects.toBe('told to');
});

test('a ratio is that of the rounds: a slow while does not count', () => {
  expect(ratio([2, 200, 4], [1, 100, 2])).toBe(2);
});

test('quantiles are figures that were measured', () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(quantile([4, 3, 2, 1], 0.5)).toBe(2);
  expect(quantile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.99)).toBe(10);
  expect(median([])).toBeNaN();
});
