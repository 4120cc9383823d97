import { Redis as Client } from 'ioredis';
import { expect, onTestFinished, test, vi } from 'vitest';
import { hasRedis, type Redis, startRedis } from './redis.js';

async function start(count: number): Promise<Redis> {
  const redis = await startRedis(count);
  onTestFinished(() => redis[Symbol.asyncDispose]());
  return redis;
}

function client(endpoint: string | undefined): Client {
  const client = new Client(endpoint ?? '');
  onTestFinished(() => client.disconnect());
  return client;
}

test.skipIf(!hasRedis())(
  'who holds a lock is who has it on a majority of the servers',
  async () => {
    const redis = await start(3);
    const [one, two] = redis.endpoints.map(client);
    await one?.set('lock', 'a');
    expect(await redis.holder('lock')).toBeUndefined();
    await two?.set('lock', 'a');
    expect(await redis.holder('lock')).toBe('a');
  },
);

test.skipIf(!hasRedis())('a holder is told when it comes, and when its time is over', async () => {
  const redis = await start(1);
  const told: (string | undefined)[] = [];
  await redis.watch('lock', (holder) => told.push(holder));
  await client(redis.endpoints[0]).set('lock', 'a', 'PX', 300);
  await vi.waitFor(() => expect(told).toEqual(['a', undefined]), { timeout: 10_000 });
});

test.skipIf(!hasRedis())(
  'a promoted replica has what was written before it, and not what came after',
  async () => {
    const redis = await start(1);
    const master = client(redis.endpoints[0]);
    await master.set('before', 'a');
    const { endpoint, promote } = await redis.replica(0);
    await master.set('lock', 'a');
    master.disconnect();
    await promote();
    expect(redis.endpoints).toEqual([endpoint]);
    expect(await client(endpoint).get('before')).toBe('a');
    expect(await redis.holder('lock')).toBeUndefined();
    expect(await client(endpoint).set('lock', 'b', 'NX')).toBe('OK');
  },
);

test('without a redis-server it says where to get one', async () => {
  vi.stubEnv('PATH', '/nowhere');
  onTestFinished(() => void vi.unstubAllEnvs());
  await expect(startRedis(1)).rejects.toThrow('the package redis-server');
});
