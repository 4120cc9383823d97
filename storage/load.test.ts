// 64 connections at once: every answer right, memory flat. LOAD_SECONDS is how long each store is
// under load: 2 by default, 30 with `npm run load`.

import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, inject, onTestFinished, test } from 'vitest';
import { startStorage } from '../scripts/lib/program.js';

const SECONDS = Number(process.env.LOAD_SECONDS ?? 2);
const CONNECTIONS = 64;

const stores = {
  memory: async () => [],
  lmdb: async () => ['--store', 'lmdb', '--data', await temporaryFolder()],
  etcd: async () => [
    ...['--store', 'etcd', '--prefix', `/load-test/${randomUUID()}/`],
    ...['--endpoints', inject('etcd').join(',')],
  ],
};

test.each(Object.entries(stores))(
  `with the %s store ${CONNECTIONS} connections get right answers, and memory stays flat`,
  async (_name, args) => {
    const storage = await startStorage(['--fence', 'monotonic', ...(await args())]);
    onTestFinished(() => storage[Symbol.asyncDispose]());
    const agent = new Agent({ keepAlive: true, maxSockets: CONNECTIONS });
    onTestFinished(() => agent.destroy());
    const ask = (body: string) => post(storage.url, agent, body);
    const end = performance.now() + SECONDS * 1000;
    const warm = performance.now() + SECONDS * 400;
    let answers = 0;
    const memory: number[] = [];
    const watch = setInterval(() => {
      if (performance.now() > warm) memory.push(residentMiB(storage.pid));
    }, SECONDS * 50);
    onTestFinished(() => clearInterval(watch));
    await Promise.all(
      Array.from({ length: CONNECTIONS }, async (_, i) => {
        for (let token = 10; performance.now() < end; token++) {
          // 64 keys of their own, so that each connection knows what it must be told.
          const [key, val] = [`key ${i}`, `${i} `.repeat(100) + token];
          const kept = `{"val":"${val}","version":${token},"err":""}`;
          expect(await ask(body('write', key, val, token))).toBe(kept);
          expect(await ask(body('write', key, 'stale', token - 1))).toMatch(
            `"err":"stale fencing token: given ${token - 1} is lower than ${token} `,
          );
          expect(await ask(body('read', key, '', token))).toBe(kept);
          expect(await ask(body('read', `no ${key}`, '', 0))).toMatch('"err":"key not found"');
          answers += 4;
        }
      }),
    );
    expect(answers).toBeGreaterThan(CONNECTIONS * 4);
    const third = Math.ceil(memory.length / 3);
    const [early, late] = [memory.slice(0, third), memory.slice(-third)].map((some) =>
      Math.min(...some),
    );
    expect(late, `MiB: ${memory}`).toBeLessThan((early ?? 0) * 1.2 + 8);
  },
  SECONDS * 1000 + 60_000,
);

const body = (op: string, key: string, val: string, version: number) =>
  JSON.stringify({ op, key, val, version });

function post(url: string, agent: Agent, body: string): Promise<string> {
  return new Promise((resolve, reject) => {
    request(url, { method: 'POST', agent }, (response) => text(response).then(resolve, reject))
      .on('error', reject)
      .end(body);
  });
}

function residentMiB(pid: number): number {
  return Number(execFileSync('ps', ['-o', 'rss=', '-p', `${pid}`])) / 1024;
}

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'load-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
