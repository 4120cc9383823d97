// With streams in this process; real terminals, pipes and signals are in main.test.ts.

import { getEventListeners } from 'node:events';
import { PassThrough } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { keyPress } from './key-press.js';

const EVENTS = ['data', 'end', 'error'];

describe.each(['pipe', 'terminal'])('on a %s', (kind) => {
  const start = kind === 'pipe' ? onPipe : onTerminal;

  test.each(['a', ' ', '\r', '\x1b[A', 'é'])('%j is a key', async (key) => {
    const { input, pressed } = start();
    input.write(key);
    await pressed;
  });

  test('it waits for as long as nothing comes', async () => {
    const { input, settled, pressed } = start();
    await turn();
    expect(settled).not.toHaveBeenCalled();
    input.write('x');
    await pressed;
  });

  test('what follows the first key stays unread', async () => {
    const { input, pressed } = start();
    input.write('x');
    await pressed;
    input.write('y');
    await turn();
    expect(input.isPaused()).toBe(true);
    expect(String(input.read())).toBe('y');
  });

  test('nothing stays behind, neither after a key nor after an abort', async () => {
    const { input, pressed } = start();
    const before = EVENTS.map((name) => new PassThrough().listenerCount(name));
    const control = new AbortController();
    const listeners = () => [
      EVENTS.map((name) => input.listenerCount(name)),
      getEventListeners(control.signal, 'abort').length,
    ];
    input.write('x');
    await pressed;
    expect(listeners()).toEqual([before, 0]);
    const aborted = keyPress(input, control.signal, unexpected);
    expect(listeners()).not.toEqual([before, 0]);
    control.abort();
    await expect(aborted).rejects.toBe(control.signal.reason);
    expect(listeners()).toEqual([before, 0]);
  });

  test('an abort that came before leaves the input alone', async () => {
    const input = new Terminal();
    const signal = AbortSignal.abort('told to end');
    await expect(keyPress(input, signal, unexpected)).rejects.toBe('told to end');
    expect(input.modes).toEqual([]);
    expect(input.readableFlowing).toBe(null);
  });
});

describe('on a pipe', () => {
  test.each(['end', 'error'])('the %s of the input is as good as a key', async (event) => {
    const { input, pressed } = onPipe();
    if (event === 'end') input.end();
    else input.destroy(new Error('EIO'));
    await pressed;
  });

  test.each(['\x03', '\x1a', '\x1c', '\x04'])('%j is a byte like any other', async (byte) => {
    const { input, pressed } = onPipe();
    input.write(byte);
    await pressed;
  });
});

describe('on a terminal', () => {
  test('it is raw while it waits, and cooked after a key', async () => {
    const { input, pressed } = onTerminal();
    expect(input.modes).toEqual(['raw']);
    input.write('x');
    await pressed;
    expect(input.modes.at(-1)).toBe('cooked');
  });

  test('it is cooked again after an abort', async () => {
    const control = new AbortController();
    const { input, pressed } = onTerminal(unexpected, control.signal);
    control.abort('told to end');
    await expect(pressed).rejects.toBe('told to end');
    expect(input.modes).toEqual(['raw', 'cooked']);
  });

  test.each([
    ['Ctrl-C', '\x03', 'SIGINT'],
    ['Ctrl-Z', '\x1a', 'SIGTSTP'],
    ['Ctrl-\\', '\x1c', 'SIGQUIT'],
  ])('%s raises its signal from a cooked terminal and is no key', async (_name, byte, signal) => {
    const raised: unknown[] = [];
    const { input, pressed, settled } = onTerminal((name) => raised.push(name, input.modes.at(-1)));
    input.write(byte);
    await turn();
    expect(raised).toEqual([signal, 'cooked']);
    expect(input.modes.at(-1)).toBe('raw');
    expect(settled).not.toHaveBeenCalled();
    input.write('x');
    await pressed;
  });

  test.each(['end', 'error'])('its %s raises SIGHUP and is no key', async (event) => {
    const control = new AbortController();
    const { input, pressed } = onTerminal((name) => control.abort(name), control.signal);
    if (event === 'end') input.end();
    else input.destroy(new Error('EIO'));
    await expect(pressed).rejects.toBe('SIGHUP');
  });
});

/** A stream that remembers the modes it was put into. */
class Terminal extends PassThrough {
  readonly isTTY = true;
  readonly modes: string[] = [];

  setRawMode(raw: boolean): never {
    this.modes.push(raw ? 'raw' : 'cooked');
    return this as never;
  }
}

function onPipe(raise = unexpected, signal?: AbortSignal) {
  return waitOn(new PassThrough(), raise, signal);
}

function onTerminal(raise = unexpected, signal?: AbortSignal) {
  return waitOn(new Terminal(), raise, signal);
}

function waitOn<T extends PassThrough>(
  input: T,
  raise: (name: NodeJS.Signals) => void,
  signal = new AbortController().signal,
) {
  const pressed = keyPress(input, signal, raise);
  const settled = vi.fn();
  pressed.then(settled, settled);
  return { input, pressed, settled };
}

function unexpected(name: NodeJS.Signals): void {
  expect.unreachable(`${name} was raised`);
}
