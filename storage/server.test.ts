import { EventEmitter, once } from 'node:events';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { generate } from 'selfsigned';
import { describe, expect, it, onTestFinished } from 'vitest';
import { freePorts } from '../scripts/lib/etcd.js';
import { HttpServer } from './server.js';

const PATIENCE = 10_000;
const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

type Options = Omit<Parameters<typeof HttpServer.listen>[1], 'host' | 'port'>;

async function start(app: RequestListener, options: Options = {}): Promise<HttpServer> {
  const server = await HttpServer.listen(app, { host: '127.0.0.1', port: 0, ...options });
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
async function startUnanswering(options: Options = {}) {
  const requests = new EventEmitter();
  const server = await start((req, res) => requests.emit('request', req, res), options);
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

describe('too many connections', () => {
  const asked = (requests: EventEmitter) => once(requests, 'request');

  it('end the one that said nothing for the longest', async () => {
    const server = await start((_req, res) => res.end('answer'), { most: 3 });
    const [talks, mute, dawdles] = [await dial(server), await dial(server), await dial(server)];
    talks.write(GET);
    await once(talks, 'data');
    dawdles.write('GET / HT');
    const muteEnded = once(mute, 'close');
    const fourth = await dial(server);
    await muteEnded;
    const dawdlerEnded = once(dawdles, 'close');
    await dial(server);
    await dawdlerEnded;
    for (const socket of [talks, fourth]) {
      socket.write(GET);
      await once(socket, 'data');
    }
  });

  it('end one that is slow to send its request or to take its answer', async () => {
    const { server, requests } = await startUnanswering({ most: 2 });
    const [sends, takes] = [await dial(server), await dial(server)];
    let request = asked(requests);
    sends.write('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n');
    await request;
    request = asked(requests);
    takes.pause().write(GET);
    const [, res] = await request;
    res.end(Buffer.alloc(2 ** 24));
    const sendsEnded = once(sends, 'close');
    await dial(server);
    await sendsEnded;
    const takesEnded = once(res, 'close');
    await dial(server);
    await takesEnded;
  });

  it('end none whose request the server is still working on: the new one has to go', async () => {
    const { server, requests } = await startUnanswering({ most: 1 });
    const waits = await dial(server);
    const request = asked(requests);
    waits.write(GET);
    const [, res] = await request;
    await once(await dial(server), 'close');
    res.end('answer');
    await once(waits, 'data');
  });

  it('do not keep others waiting, be it hundreds', async () => {
    const server = await start((_req, res) => res.end('answer'), { most: 50 });
    for (let i = 0; i < 300; i++) (await dial(server)).write('GET / HTTP/1.1\r\nHost:');
    const socket = await dial(server);
    socket.write(GET);
    await once(socket, 'data');
  });
});

describe('a connection that is kept', () => {
  it('is ended when it neither sends nor takes anything for as long as is allowed', async () => {
    const server = await start((_req, res) => res.end('answer'), { idle: 200 });
    const socket = await dial(server);
    const since = performance.now();
    socket.write(GET);
    expect(await text(socket)).toMatch(/\r\n\r\nanswer$/);
    expect(performance.now() - since).toBeGreaterThan(190);
  });
});

describe('pipelined requests of all clients together', () => {
  it('end the connections that have more than one waiting when they are too many', async () => {
    const { server, requests } = await startUnanswering();
    const answers = new Map<string | undefined, ServerResponse>();
    requests.on('request', (req: IncomingMessage, res) => answers.set(req.url, res));
    const ask = async (socket: Socket, path: string) => {
      socket.write(GET.replace('/', path));
      while (!answers.has(path)) await once(requests, 'request');
    };
    const patient = await dial(server);
    await ask(patient, '/patient');
    const greedy = await Promise.all(Array.from({ length: 10 }, () => dial(server)));
    const closed = greedy.map((socket) => once(socket.resume(), 'close'));
    for (const socket of greedy) socket.write(GET.repeat(900));
    await Promise.race(closed);
    const late = await dial(server);
    await ask(late, '/late');
    for (const [socket, path] of [
      [patient, '/patient'],
      [late, '/late'],
    ] as const) {
      answers.get(path)?.end('answer');
      await once(socket, 'data');
    }
  });

  it('no longer count when their clients have gone', async () => {
    let asked = 0;
    const more = new EventEmitter();
    const server = await start((req, res) => {
      asked++;
      if (req.url === '/answer') res.end('answer');
      more.emit('asked');
    });
    for (let client = 1; client <= 6; client++) {
      const socket = await dial(server);
      socket.write(GET.repeat(900));
      while (asked < client * 900) await once(more, 'asked');
      socket.destroy();
    }
    const socket = await dial(server);
    const request = GET.replace('/', '/answer');
    socket.write(request.repeat(4) + request.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
    expect((await text(socket)).match(/\r\n\r\nanswer/g)).toHaveLength(5);
  });
});

describe('a connection from where another one was cut a moment ago', () => {
  it('is one like any other', async () => {
    const server = await start((_req, res) => res.end('answer'));
    // Not one that the system gives to others who connect: it has to be free again each time.
    const [localPort = 0] = await freePorts(1);
    const open = async () => {
      const where = { port: server.address.port, host: '127.0.0.1', localPort };
      const socket = connect(where).on('error', () => {});
      await once(socket, 'connect');
      return socket;
    };
    let socket = await open();
    for (let i = 0; i < 50; i++) {
      socket.resetAndDestroy();
      socket = await open();
    }
    onTestFinished(() => void socket.destroy());
    socket.write(GET);
    await once(socket, 'data');
    const closed = once(socket.resume(), 'close');
    const stopped = performance.now();
    await server.close(PATIENCE);
    await closed;
    // Before it would be ended for being idle, or for want of patience.
    expect(performance.now() - stopped).toBeLessThan(4000);
  });
});

describe('with a certificate', () => {
  it('answers over TLS, stops as without, and counts each connection once', async () => {
    const { private: key, cert } = await generate([{ name: 'commonName', value: 'localhost' }], {
      keyType: 'ec',
    });
    const tls = { key: Buffer.from(key), cert: Buffer.from(cert) };
    const server = await start((_req, res) => res.end('answer'), { tls, most: 2 });
    const dialTls = async () => {
      const socket = connectTls({
        port: server.address.port,
        host: '127.0.0.1',
        ca: cert,
        servername: 'localhost',
      });
      socket.on('error', () => {});
      onTestFinished(() => void socket.destroy());
      await once(socket, 'secureConnect');
      return socket;
    };
    for (let i = 0; i < 5; i++) {
      const socket = await dialTls();
      socket.write(GET);
      await once(socket, 'data');
      if (i % 2) continue;
      const closed = once(socket, 'close');
      socket.end();
      await closed;
    }
    const [mute, last] = [await dial(server), await dialTls()];
    last.write(GET);
    await once(last, 'data');
    const closed = [once(mute.resume(), 'close'), once(last.resume(), 'close')];
    await server.close(PATIENCE);
    await Promise.all(closed);
  });
});
