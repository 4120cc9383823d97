// The load that benchmarks put on a server.

import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { load, post } from './storage-load.js';

const { signal } = new AbortController();

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
  const pair = [post('one'), post('other')] as const;
  const { perSecond, p50, p99 } = await load(port, [pair, pair, pair], { ms: 50, signal });
  expect(asked.size).toBe(3);
  for (const bodies of asked.values()) {
    expect(bodies).toEqual(bodies.map((_, i) => (i % 2 ? 'other' : 'one')));
  }
  expect(perSecond).toBeGreaterThan(0);
  expect(p99).toBeGreaterThanOrEqual(p50);
});

test('an answer in two pieces is one answer', async () => {
  let answers = 0;
  const port = await serve((req, res) => {
    req.resume();
    res.setHeader('Content-Length', 10);
    res.write('first');
    setImmediate(() => {
      answers++;
      res.end('after');
    });
  });
  const pair = [post('one'), post('other')] as const;
  await load(port, [pair], { ms: 20, signal });
  expect(answers).toBeGreaterThan(0);
});

test('it ends when an answer is not the one that is measured', async () => {
  const port = await serve((_req, res) => {
    res.statusCode = 503;
    res.end('no');
  });
  const pair = [post('one'), post('other')] as const;
  await expect(load(port, [pair], { ms: 10_000, signal })).rejects.toThrow('503 Service');
});

test('a signal ends it with its reason', async () => {
  const controller = new AbortController();
  const port = await serve(() => controller.abort('told to'));
  const pair = [post('one'), post('other')] as const;
  const options = { ms: 10_000, signal: controller.signal };
  await expect(load(port, [pair], options)).rejects.toBe('told to');
});
