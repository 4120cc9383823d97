import { EventEmitter, once } from 'node:events';
import type { RequestListener } from 'node:http';
import { connect, type Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { HttpServer } from './server.js';

const PATIENCE = 10_000;
const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

async function start(app: RequestListener): Promise<HttpServer> {
  const server = await HttpServer.listen(app, { host: '127.0.0.1', port: 0 });
  onTestFinished(() => server.close(0));
  return server;
}

async function dial(server: HttpServer): Promise<Socket> {
  const socket = connect(server.address.port, '127.0.0.1').on('error', () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/** A server that leaves its requests to the test: `once(requests, 'request')` is `[req, res]`. */
async function startUnanswering() {
  const requests = new EventEmitter();
  const server = await start((req, res) => requests.emit('request', req, res));
  return { server, requests };
}

describe('stopping an HTTP server', () => {
  it('ends an idle connection at once and accepts no new one', async () => {
    const server = await start((_req, res) => res.end('answer'));
    const { port } = server.address;
    const socket = await dial(server);
    socket.write(GET);
    await once(socket, 'data');
    const closed = once(socket.resume(), 'close');
    await server.close(PATIENCE);
    await closed;
    const [error] = await once(connect(port, '127.0.0.1'), 'error');
    expect(error).toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('waits for a request in flight, then ends its connection', async () => {
    const { server, requests } = await startUnanswering();
    const [socket, idle] = [await dial(server), await dial(server)];
    const asked = once(requests, 'request');
    socket.write(GET);
    const [, res] = await asked;
    const idleClosed = once(idle.resume(), 'close');
    const stopped = server.close(PATIENCE);
    await idleClosed;
    res.end('answer');
    expect(await text(socket)).toMatch(/\r\n\r\nanswer$/);
    await stopped;
  });

  it('cuts no answer that is still on its way to a slow reader', async () => {
    const [size, count] = [2 ** 20, 16];
    const server = await start((_req, res) => res.end(Buffer.alloc(size)));
    const socket = await dial(server);
    socket.pause().write(GET.repeat(count));
    await once(socket, 'readable');
    const stopped = server.close(PATIENCE);
    expect((await buffer(socket)).length).toBeGreaterThan(size * count);
    await stopped;
  });

  it('lets a client that is still sending finish and read its answer', async () => {
    const { server, requests } = await startUnanswering();
    const socket = await dial(server);
    const asked = once(requests, 'request');
    const size = 2 ** 24;
    socket.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n`);
    let answer = '';
    socket.setEncoding('utf8').on('data', (chunk) => {
      answer += chunk;
    });
    const closed = once(socket.end(Buffer.alloc(size)), 'close');
    const [req, res] = await asked;
    const stopped = server.close(PATIENCE);
    req.resume();
    res.end('too large');
    await closed;
    expect(answer).toMatch(/\r\n\r\ntoo large$/);
    expect(socket.writableFinished).toBe(true);
    await stopped;
  });

  it('cuts what is not done when its patience ends', async () => {
    const { server, requests } = await startUnanswering();
    const socket = await dial(server);
    const asked = once(requests, 'request');
    socket.write(GET);
    await asked;
    const closed = once(socket.resume(), 'close');
    await server.close(50);
    await closed;
  });
});
