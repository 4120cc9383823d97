// The proxy before a server that sends back what it gets, and before a real etcd.

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { noop } from 'cockatiel';
import { Etcd3 } from 'etcd3';
import { expect, inject, onTestFinished, test } from 'vitest';
import { type FaultProxy, startProxy } from './proxy.js';

/** A proxy before an echo, and the sockets that the echo has accepted. */
async function echo(): Promise<{ proxy: FaultProxy; accepted: Socket[] }> {
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket.on('error', () => {}));
    socket.pipe(socket);
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const proxy = await startProxy(`127.0.0.1:${(server.address() as AddressInfo).port}`);
  onTestFinished(() => proxy[Symbol.asyncDispose]());
  return { proxy, accepted };
}

/** A client and all that it has received. */
async function dial(proxy: FaultProxy) {
  const socket = connect(Number(new URL(proxy.endpoint).port), '127.0.0.1');
  let received = '';
  let more = () => {};
  socket
    .on('error', () => {})
    .on('data', (bytes) => {
      received += bytes;
      more();
    });
  const closed = once(socket, 'close');
  await once(socket, 'connect');
  return {
    socket,
    closed,
    received: () => received,
    /** Resolves when all of `text` has come. */
    async receives(text: string): Promise<void> {
      while (received.length < text.length) {
        await new Promise<void>((resolve) => {
          more = resolve;
        });
      }
      expect(received).toBe(text);
    },
  };
}

test('it passes everything and counts the bytes of either direction', async () => {
  const { proxy } = await echo();
  const client = await dial(proxy);
  const there = proxy.traffic('toServer', 4);
  const back = proxy.traffic('toClient', 4);
  client.socket.write('ab');
  client.socket.write('cd');
  await client.receives('abcd');
  await there;
  await back;
  expect(proxy.bytes).toEqual({ toServer: 4, toClient: 4 });
});

test('a delay counts from when the bytes came, and keeps their order', async () => {
  const { proxy } = await echo();
  const client = await dial(proxy);
  proxy.delay(50);
  const start = performance.now();
  client.socket.write('a');
  await proxy.traffic('toServer');
  client.socket.write('b');
  await client.receives('ab');
  expect(performance.now() - start).toBeGreaterThanOrEqual(99);
});

test('what is swallowed comes through in order when the way is free again', async () => {
  const { proxy } = await echo();
  const before = await dial(proxy);
  before.socket.write('a');
  await before.receives('a');
  proxy.swallow();
  const after = await dial(proxy);
  for (const client of [before, after]) {
    const arrived = proxy.traffic('toServer');
    client.socket.write('b');
    await arrived;
  }
  expect([before.received(), after.received()]).toEqual(['a', '']);
  proxy.pass();
  await before.receives('ab');
  await after.receives('b');
});

test('a close is swallowed too, and comes after what was sent before it', async () => {
  const { proxy, accepted } = await echo();
  const client = await dial(proxy);
  client.socket.write('a');
  await client.receives('a');
  const [server] = accepted;
  if (!server) throw new Error('expected a connection');
  let read = '';
  server.on('data', (bytes) => {
    read += bytes;
  });
  proxy.swallow();
  const arrived = proxy.traffic('toServer');
  client.socket.end('b');
  await arrived;
  const closed = once(server, 'close');
  expect(read).toBe('');
  proxy.pass();
  await closed;
  expect(read).toBe('b');
});

test('one direction can be dropped alone', async () => {
  const { proxy } = await echo();
  const client = await dial(proxy);
  proxy.dropToClient();
  const answered = proxy.traffic('toClient');
  client.socket.write('a');
  await answered;
  expect(client.received()).toBe('');
  proxy.dropToServer();
  await client.receives('a');
  const sent = proxy.traffic('toServer');
  client.socket.write('b');
  await sent;
  expect(proxy.bytes).toEqual({ toServer: 2, toClient: 1 });
  proxy.pass();
  await client.receives('ab');
});

test('refusing closes open connections and new ones, until it passes again', async () => {
  const { proxy } = await echo();
  const client = await dial(proxy);
  proxy.refuse();
  await client.closed;
  await (await dial(proxy)).closed;
  proxy.pass();
  const next = await dial(proxy);
  next.socket.write('a');
  await next.receives('a');
});

test('cutting closes open connections, and what they held back is gone', async () => {
  const { proxy, accepted } = await echo();
  const client = await dial(proxy);
  client.socket.write('a');
  await client.receives('a');
  let read = '';
  accepted[0]?.on('data', (bytes) => {
    read += bytes;
  });
  proxy.dropToServer();
  const sent = proxy.traffic('toServer');
  client.socket.write('b');
  await sent;
  proxy.cut();
  await client.closed;
  proxy.pass();
  const next = await dial(proxy);
  next.socket.write('c');
  await next.receives('c');
  expect(read).toBe('');
});

test('a request whose answer is cut off has taken effect', async () => {
  const [target = ''] = inject('etcd');
  const proxy = await startProxy(target);
  onTestFinished(() => proxy[Symbol.asyncDispose]());
  const direct = new Etcd3({ hosts: target });
  const etcd = new Etcd3({ hosts: proxy.endpoint, faultHandling: { global: noop } });
  onTestFinished(() => {
    direct.close();
    etcd.close();
  });
  const key = `proxy-test/${Math.random()}`;
  await etcd.put(key).value('first');
  for (const value of ['second', 'third']) {
    const cut = proxy.cutAfterRequest();
    await expect(etcd.put(key).value(value).exec()).rejects.toThrow();
    await cut;
    expect(await direct.get(key).string()).toBe(value);
  }
  // Only one answer each: the next call is answered.
  expect(await etcd.get(key).string()).toBe('third');
});

test('disposing closes all connections and stops listening', async () => {
  const { proxy, accepted } = await echo();
  const client = await dial(proxy);
  client.socket.write('a');
  await client.receives('a');
  proxy.delay(60_000);
  const sent = proxy.traffic('toServer');
  client.socket.write('b');
  await sent;
  await proxy[Symbol.asyncDispose]();
  await client.closed;
  expect(accepted[0]?.closed || (await once(accepted[0] as Socket, 'close'))).toBeTruthy();
  await expect(dial(proxy)).rejects.toThrow();
});
