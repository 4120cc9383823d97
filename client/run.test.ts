// The flow in this process, for what takes many runs; the program itself is in main.test.ts.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { run } from './run.js';

const storage = createServer((_request, response) => response.end('{"err":""}'));
beforeAll(() => once(storage.listen(0, '127.0.0.1'), 'listening'));
afterAll(() => storage.close());

test.concurrent.each([0, 1, 2])(
  'with number %i of three endpoints alone alive every start takes less than 5 s',
  async (position) => {
    const endpoints = [1, 2, 3].map((port) => `http://127.0.0.1:${port}`);
    endpoints.splice(position, 1, ...inject('etcd'));
    const { port } = storage.address() as AddressInfo;
    const options = {
      etcd: { endpoints },
      storage: { url: `http://127.0.0.1:${port}` },
      token: 'lease' as const,
      ttl: 1,
      lock: `/run-test-${position}`,
      record: 'run-test',
    };
    for (let i = 0; i < 17; i++) {
      const start = performance.now();
      let acquired = Number.POSITIVE_INFINITY;
      const well = await run(2, options, {
        log: (line) => {
          if (line.startsWith('acquired lock')) acquired = performance.now() - start;
        },
        keyPress: () => expect.unreachable('client 2 asks for no key'),
        signal: new AbortController().signal,
      });
      expect(well).toBe(true);
      expect(acquired).toBeLessThan(5000);
    }
  },
);
