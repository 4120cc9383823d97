// The load that benchmarks put on a server.

import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { load, post } from './storage-load.js';

const { signal } = new AbortController();
const pair = [post('one'), post('two')] as const;

async function serve(listener: RequestListener): Promise<number> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

test('each connection asks for the one and the other in turn, one at a time', async () => {
  const asked = new Map<number | undefined, string[]>();
  const port = await serve(async (req, res) => {
    const { remotePort } = req.socket;
    const body = await text(req);
    asked.set(remotePort, [...(asked.get(remotePort) ?? []), body]);
    res.end(body);
  });
  const { perSecond, p50, p99 } = await load(port, [pair, pair, pair], { ms: 50, signal });
  expect(asked.size).toBe(3);
  for (const bodies of asked.values()) {
    expect(bodies).toEqual(bodies.map((_, i) => (i % 2 ? 'two' : 'one')));
  }
  expect(perSecond).toBeGreaterThan(0);
  expect(p99).toBeGreaterThanOrEqual(p50);
});

test('an answer in two pieces is one answer', async () => {
  let answered = 0;
  const port = await serve((req, res) => {
    req.resume();
    res.setHeader('Content-Length', 10);
    res.write('first');
    setImmediate(() => {
      answered++;
      res.end('after');
    });
  });
  const { answers } = await load(port, [pair], { ms: 20, signal });
  expect(answers).toBeGreaterThan(0);
  expect(answers).toBe(answered);
});

test('it ends when the server hangs up before all is answered', async () => {
  const port = await serve((req, res) => {
    res.setHeader('Content-Length', 10);
    res.write('first');
    req.on('end', () => res.destroy()).resume();
  });
  await expect(load(port, [pair], { ms: 10_000, signal })).rejects.toThrow('the server hung up');
});

test('it ends when an answer is longer or shorter than the first', async () => {
  for (const other of ['accepted', 'ok']) {
    const port = await serve(async (req, res) => {
      res.end((await text(req)) === 'one' ? 'written' : other);
    });
    await expect(load(port, [pair], { ms: 10_000, signal })).rejects.toThrow(/expected \d+ bytes/);
  }
});

test('it ends when an answer is not the one that is measured', async () => {
  const port = await serve((_req, res) => {
    res.statusCode = 503;
    res.end('no');
  });
  await expect(load(port, [pair], { ms: 10_000, signal })).rejects.toThrow('503 Service');
});

test('a signal ends it with its reason', async () => {
  const controller = new AbortController();
  const port = await serve(() => controller.abort('told to'));
  const options = { ms: 10_000, signal: controller.signal };
  await expect(load(port, [pair], options)).rejects.toBe('told to');
});
