import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Address, ListenError, listen, parseAddress } from './listen.js';

const LOOPBACKS = ['127.0.0.1', '::1'].filter((address) =>
  Object.values(networkInterfaces()).some((all) => all?.some((one) => one.address === address)),
);

const app: RequestListener = (_req, res) => res.end('here');

async function start(address: Address) {
  const listening = await listen(app, address);
  onTestFinished(() => listening.close(0));
  return { ...listening, port: Number(new URL(listening.url).port) };
}

/** Takes a free port of one address, as another program would. */
async function occupy(host: string): Promise<number> {
  const server = createServer().listen(0, host);
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

const answer = async (host: string, port: number) =>
  (await fetch(`http://${host.includes(':') ? `[${host}]` : host}:${port}`)).text();

describe('an address', () => {
  it.each([
    ['localhost:8080', { host: 'localhost', port: 8080 }],
    ['LocalHost:8080', { host: 'localhost', port: 8080 }],
    [':8080', { host: '', port: 8080 }],
    ['127.0.0.1:0', { host: '127.0.0.1', port: 0 }],
    ['0.0.0.0:65535', { host: '0.0.0.0', port: 65535 }],
    ['[::1]:8080', { host: '::1', port: 8080 }],
    ['[::]:8080', { host: '::', port: 8080 }],
    ['storage.example.com:80', { host: 'storage.example.com', port: 80 }],
  ])('may be %s', (text, address) => {
    expect(parseAddress(text)).toEqual(address);
  });

  it.each([
    '',
    'localhost',
    '8080',
    ':',
    'localhost:',
    ':65536',
    ':-1',
    ':1e3',
    ':123456',
    ':80 ',
    ' :80',
    '::1:8080',
    '[::1]',
    '[]:80',
    '[localhost]:80',
    '[127.0.0.1]:80',
    'a b:80',
    'http://localhost:80',
  ])('may not be %j', (text) => {
    expect(() => parseAddress(text)).toThrow(RangeError);
  });
});

describe('listening', () => {
  it('on localhost answers on every loopback address, at one port', async () => {
    const { url, hosts, port } = await start({ host: 'localhost', port: 0 });
    expect(url).toBe(`http://localhost:${port}`);
    expect(hosts).toEqual(LOOPBACKS);
    for (const host of LOOPBACKS) expect(await answer(host, port)).toBe('here');
  });

  it.each(LOOPBACKS)('on %s answers there only', async (address) => {
    const { url, hosts, port } = await start({ host: address, port: 0 });
    expect(url).toBe(`http://${address === '::1' ? '[::1]' : address}:${port}`);
    expect(hosts).toEqual([address]);
    expect(await answer(address, port)).toBe('here');
    for (const other of LOOPBACKS.filter((one) => one !== address)) {
      await expect(answer(other, port)).rejects.toThrow();
    }
  });

  it('without a host answers everywhere', async () => {
    const { url, hosts, port } = await start({ host: '', port: 0 });
    expect(url).toBe(`http://localhost:${port}`);
    expect(hosts).toEqual(['every interface']);
    for (const host of LOOPBACKS) expect(await answer(host, port)).toBe('here');
  });

  it.each(LOOPBACKS)(
    'on localhost fails when the port is taken on %s, and holds none',
    async (host) => {
      const port = await occupy(host);
      const failed = listen(app, { host: 'localhost', port });
      await expect(failed).rejects.toBeInstanceOf(ListenError);
      await expect(failed).rejects.toMatchObject({
        code: 'EADDRINUSE',
        message: `cannot listen on ${host === '::1' ? '[::1]' : host}:${port}: the port is in use; stop the program that has it or choose another with --listen`,
      });
      for (const other of LOOPBACKS.filter((one) => one !== host)) {
        await start({ host: other, port });
      }
    },
  );

  it('on a free port of localhost looks for one that is free on both addresses', async () => {
    // Many ports are taken on one address only, so that some attempts meet one of them.
    const taken = new Set<number>();
    for (let i = 0; i < 200; i++) taken.add(await occupy(LOOPBACKS.at(-1) ?? ''));
    for (let i = 0; i < 200; i++) {
      const { port, hosts } = await start({ host: 'localhost', port: 0 });
      expect(hosts).toEqual(LOOPBACKS);
      expect(taken).not.toContain(port);
    }
  });

  it('fails on an address of another machine', async () => {
    await expect(listen(app, { host: '192.0.2.1', port: 0 })).rejects.toMatchObject({
      message: 'cannot listen on 192.0.2.1:0: this machine does not have that address',
    });
  });
});
