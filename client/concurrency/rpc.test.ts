import { GRPCResourceExhastedError, GRPCUnavailableError } from 'etcd3';
import { expect, inject, test, vi } from 'vitest';
import { Peer } from '../../scripts/lib/peer.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { Unreachable } from './errors.js';
import { rpc } from './rpc.js';
import { Scope } from './timing.js';

const [endpoint = ''] = inject('etcd');

test.concurrent('an etcd that is slower than the first attempt gets more time with each', async () => {
  await using proxy = await startProxy(endpoint);
  await using peer = await Peer.connect([proxy.endpoint]);
  proxy.delay(300);
  const range = { key: Buffer.from('rpc-test') };
  const answer = await rpc((call) => peer.etcd.kv.range(range, call), {
    attempt: 100,
    timeout: 10_000,
  });
  expect(answer.kvs).toEqual([]);
});

test.concurrent('no first attempt is so long that another endpoint would not be tried', async () => {
  const started: number[] = [];
  await rpc(
    async () => {
      started.push(performance.now());
      if (started.length === 1) await new Promise(() => {});
    },
    { attempt: 3e12 },
  );
  expect(started).toHaveLength(2);
}, 7000);

test('what trying again may mend is tried again, until the time is over', async () => {
  let calls = 0;
  const failing = rpc(
    async () => {
      calls++;
      throw new GRPCUnavailableError('gone');
    },
    { timeout: 200 },
  );
  await expect(failing).rejects.toThrow(Unreachable);
  await expect(failing).rejects.toMatchObject({ cause: new GRPCUnavailableError('gone') });
  expect(calls).toBeGreaterThan(2);
});

test('what trying again cannot mend is thrown as it is', async () => {
  const error = new Error('etcdserver: something');
  await expect(rpc(() => Promise.reject(error))).rejects.toBe(error);
});

test('the signal ends it with its reason, in an attempt and between two', async () => {
  for (const call of [
    () => new Promise<never>(() => {}),
    () => Promise.reject(new GRPCUnavailableError('gone')),
  ]) {
    const controller = new AbortController();
    const calling = rpc(call, { signal: controller.signal });
    setTimeout(() => controller.abort('enough'), 20);
    await expect(calling).rejects.toBe('enough');
  }
});

test('nothing is sent once the signal has aborted', async () => {
  const call = vi.fn(async () => 'sent');
  await expect(rpc(call, { signal: AbortSignal.abort('enough') })).rejects.toBe('enough');
  expect(call).not.toHaveBeenCalled();
});

test('a caller whose time is over because etcd was silent is told that it was', async () => {
  using scope = new Scope([], 600);
  const silent = () => new Promise<never>(() => {});
  await expect(rpc(silent, { signal: scope.signal })).rejects.toThrow(Unreachable);
});

test('etcd out of space is not asked again and again', async () => {
  const full = new GRPCResourceExhastedError('8: etcdserver: mvcc: database space exceeded');
  const call = vi.fn(() => Promise.reject(full));
  await expect(rpc(call)).rejects.toBe(full);
  expect(call).toHaveBeenCalledTimes(1);
});
