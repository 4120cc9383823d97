import { getEventListeners } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { Timeout } from './errors.js';
import { delay, OVER, Scope, until, within } from './timing.js';

const never = new Promise<never>(() => {});

function listeners(signal: AbortSignal): number {
  return getEventListeners(signal, 'abort').length;
}

function timers(): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
}

test('a delay takes its time', async () => {
  const start = performance.now();
  await delay(30);
  expect(performance.now() - start).toBeGreaterThanOrEqual(30);
  await delay(0);
  await delay(-1);
});

test('a delay beyond what a timer can hold does not end at once', async () => {
  const controller = new AbortController();
  const warnings: Error[] = [];
  const warn = (warning: Error) => warnings.push(warning);
  process.on('warning', warn);
  const ended = delay(2 ** 40, controller.signal);
  expect(await within(50, undefined, ended)).toBe(OVER);
  controller.abort(new Error('enough'));
  await expect(ended).rejects.toThrow('enough');
  process.off('warning', warn);
  expect(warnings).toEqual([]);
});

test('waiting ends with the value, the error, the time or the signal, whichever is first', async () => {
  const { signal } = new AbortController();
  expect(await within(1000, signal, Promise.resolve(1))).toBe(1);
  await expect(within(1000, signal, Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(await within(1, signal, never)).toBe(OVER);
  const reason = new Error('aborted');
  await expect(within(1000, AbortSignal.abort(reason), Promise.resolve(1))).rejects.toBe(reason);
  const controller = new AbortController();
  const waiting = until(controller.signal, never);
  controller.abort(reason);
  await expect(waiting).rejects.toBe(reason);
});

test('waiting leaves no timer and no listener behind', async () => {
  const before = timers();
  const controller = new AbortController();
  const { signal } = controller;
  await within(60_000, signal, Promise.resolve());
  await within(60_000, signal, Promise.reject(new Error())).catch(() => {});
  await within(1, signal, never);
  await delay(1, signal);
  expect(listeners(signal)).toBe(0);
  const waits = [delay(60_000, signal), within(60_000, signal, never), until(signal, never)];
  expect(listeners(signal)).toBe(3);
  controller.abort();
  await Promise.allSettled(waits);
  expect(listeners(signal)).toBe(0);
  // The test runner has one of its own, which may end meanwhile.
  expect(timers()).toBeLessThanOrEqual(before);
});

test('what rejects when nobody waits for it any more bothers nobody', async () => {
  const rejects: (() => void)[] = [];
  const late = () =>
    new Promise<never>((_, reject) => {
      rejects.push(() => reject(new Error('late')));
    });
  expect(await within(1, undefined, late())).toBe(OVER);
  await expect(until(AbortSignal.abort('before'), late())).rejects.toBe('before');
  for (const reject of rejects) reject();
  // vitest fails the run for a rejection that is not handled.
  await new Promise(setImmediate);
});

test('a delay that is over leaves no memory behind', async () => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  const used = async () => {
    await Promise.all(Array.from({ length: 20_000 }, () => delay(1)));
    await new Promise(setImmediate);
    gc();
    return process.memoryUsage().heapUsed;
  };
  await used();
  const before = await used();
  expect((await used()) - before).toBeLessThan(1_000_000);
});

test('a scope aborts with its first source, once, or with its time limit', async () => {
  const [first, second] = [new AbortController(), new AbortController()];
  using scope = new Scope([first.signal, undefined, second.signal], 60_000);
  const reasons: unknown[] = [];
  scope.signal.addEventListener('abort', () => reasons.push(scope.signal.reason));
  second.abort('second');
  first.abort('first');
  expect(reasons).toEqual(['second']);
  using late = new Scope([first.signal]);
  expect(late.signal.reason).toBe('first');
  using limited = new Scope([], 5);
  await expect(until(limited.signal, never)).rejects.toEqual(new Timeout(5));
});

test('a scope of one signal is that signal', () => {
  const { signal } = new AbortController();
  using scope = new Scope([undefined, signal]);
  expect(scope.signal).toBe(signal);
  expect(listeners(signal)).toBe(0);
});

test('a scope that is disposed of leaves its sources alone', () => {
  const before = timers();
  const { signal } = new AbortController();
  {
    using scope = new Scope([signal], 60_000);
    expect(listeners(signal)).toBe(1);
    expect(scope.signal.aborted).toBe(false);
  }
  expect(listeners(signal)).toBe(0);
  expect(timers()).toBe(before);
});
