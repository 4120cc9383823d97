import { once } from 'node:events';
import { type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type AppOptions, createApp } from './app.js';
import { rules } from './fence.js';
import type { Outcome } from './outcome.js';
import { HttpServer } from './server.js';
import { MemoryStore } from './stores/memory.js';
import { NoRoom, Unavailable } from './stores/store.js';

const MIB = 2 ** 20;
const READ = '{"op":"read","key":"key0"}';
const NOT_FOUND = '{"val":"","version":-1,"err":"key not found"}';
const TOO_LARGE = '{"val":"","version":-1,"err":"expected the body to be at most 1048576 bytes"}';

async function start(options: Partial<AppOptions> = {}) {
  const outcomes: Outcome[] = [];
  const app = createApp({
    store: new MemoryStore(),
    rule: rules.equal,
    observe: (outcome) => outcomes.push(outcome),
    signal: new AbortController().signal,
    ...options,
  });
  const server = await HttpServer.listen(app, { host: '127.0.0.1', port: 0 });
  onTestFinished(() => server.close(0));
  const { port } = server.address;
  return {
    outcomes,
    /** Sends a body and resolves to the answer's status and text. */
    async ask(body: string | Buffer, init: RequestInit = {}): Promise<[number, string]> {
      const response = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body, ...init });
      return [response.status, await response.text()];
    },
    /** As `ask`, with any path and headers: neither is changed on the way. */
    async raw(
      method: string,
      path: string,
      headers: OutgoingHttpHeaders = {},
      body = '',
    ): Promise<[status: number | undefined, body: string, headers: IncomingHttpHeaders]> {
      const options = { host: '127.0.0.1', port, method, path, headers, agent: false };
      const [response] = await once(request(options).end(body), 'response');
      return [response.statusCode, await text(response), response.headers];
    },
    async dial(): Promise<Socket> {
      const socket = connect(port, '127.0.0.1').on('error', () => {});
      onTestFinished(() => void socket.destroy());
      await once(socket, 'connect');
      return socket;
    },
  };
}

/** A request as bytes on a connection that ends with its answer. */
const wire = (requestLine: string, body: string, headers = '') =>
  `${requestLine} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${body.length}\r\n${headers}\r\n${body}`;

/** A body of exactly `size` bytes that writes `key0`. */
function sized(size: number): string {
  const [head, tail] = ['{"op":"write","key":"key0","version":7,"val":"', '"}'];
  return head + 'x'.repeat(size - head.length - tail.length) + tail;
}

describe('the answers', () => {
  it('are those of upstream, byte for byte', async () => {
    const [loser, winner] = [0x694d82254d5fa305n, 0x694d82254e18770an];
    const { ask } = await start();
    const write = (val: string, version: bigint) =>
      ask(`{"op":"write","key":"key0","val":"${val}","version":${version}}`);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
    const stored = `{"val":"value from client 2","version":${winner},"err":""}`;
    expect(await write('value from client 2', winner)).toEqual([200, stored]);
    expect(await write('value from client 1', loser)).toEqual([
      200,
      '{"val":"","version":-1,"err":"given version (694d82254d5fa305) is different from the existing version (694d82254e18770a)"}',
    ]);
    expect(await ask(READ)).toEqual([200, stored]);
    const again = `{"val":"new","version":${winner},"err":""}`;
    expect(await write('new', winner)).toEqual([200, again]);
    expect(await ask(READ)).toEqual([200, again]);
  });

  it.each([
    ['4703569812595502721', '4703569812595502727'],
    ['4703569812595502727', '4703569812595502721'],
    ['9007199254740993', '9007199254740992'],
    ['9223372036854775807', '9223372036854775806'],
    ['-9223372036854775808', '-9223372036854775807'],
    ['0', '-1'],
  ])('keep %s and refuse its neighbour %s', async (version, neighbour) => {
    const { ask } = await start();
    const write = (val: string, version: string) =>
      ask(`{"op":"write","key":"key0","val":"${val}","version":${version}}`);
    const stored = `{"val":"first","version":${version},"err":""}`;
    expect(await write('first', version)).toEqual([200, stored]);
    const [status, refusal] = await write('stale', neighbour);
    expect(status).toBe(200);
    expect(refusal).toContain(
      `"err":"given version (${BigInt(neighbour).toString(16)}) is different from the existing version (${BigInt(version).toString(16)})"}`,
    );
    expect(await ask(READ)).toEqual([200, stored]);
  });

  it('carry application/json, the length, and nothing about the server', async () => {
    const { dial } = await start();
    const socket = await dial();
    socket.write(wire('POST /', READ));
    const [head = '', body] = (await text(socket)).split('\r\n\r\n');
    expect(body).toBe(NOT_FOUND);
    expect(head.split('\r\n').filter((line) => !line.startsWith('Date: '))).toEqual([
      'HTTP/1.1 200 OK',
      'Content-Type: application/json',
      'Content-Length: 45',
      'Connection: close',
    ]);
  });

  it('treat __proto__ and its like as ordinary keys', async () => {
    const { ask } = await start();
    for (const key of ['__proto__', 'constructor', 'hasOwnProperty', '']) {
      expect(await ask(`{"op":"read","key":"${key}"}`)).toEqual([200, NOT_FOUND]);
      await ask(`{"op":"write","key":"${key}","val":"of ${key}","version":1}`);
    }
    for (const key of ['__proto__', 'constructor', 'hasOwnProperty', '']) {
      const stored = `{"val":"of ${key}","version":1,"err":""}`;
      expect(await ask(`{"op":"read","key":"${key}"}`)).toEqual([200, stored]);
    }
    expect(await ask('{"__proto__":{"op":"read"}}')).toEqual([
      400,
      '{"val":"","version":-1,"err":"unknown op: "}',
    ]);
  });
});

describe('a request', () => {
  it.each(['/', '/a/b?c=d', '//x', '/%zz', '/%', '/..', '/a?%ff#x', '*', 'http://other.example/x'])(
    'may come on any path: %s',
    async (path) => {
      const { dial } = await start();
      const socket = await dial();
      socket.write(wire(`POST ${path}`, READ));
      expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 OK\r\n.*"err":"key not found"}$/s);
    },
  );

  it.each([
    'application/json',
    'application/x-www-form-urlencoded',
    'text/plain; charset=utf-16',
    'multipart/form-data; boundary=x',
    'nonsense',
  ])('may have any content type, and is UTF-8: %s', async (type) => {
    const { ask } = await start();
    const init = { headers: { 'content-type': type } };
    const stored = '{"val":"é\u{1f600}","version":1,"err":""}';
    const request = '{"op":"write","key":"key0","val":"é\u{1f600}","version":1}';
    expect(await ask(request, init)).toEqual([200, stored]);
  });

  it('may come without a content type, in chunks, and after Expect: 100-continue', async () => {
    const { dial } = await start();
    const socket = await dial();
    socket.write(
      'POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n',
    );
    await once(socket, 'readable');
    for (const byte of READ) socket.write(`1\r\n${byte}\r\n`);
    socket.write('0\r\n\r\n');
    expect(await text(socket)).toMatch(
      /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 OK\r\n.*"err":"key not found"}$/s,
    );
  });

  it.each([
    ['', 'failed to unmarshal json: expected a JSON object, got the end at offset 0'],
    ['null', 'failed to unmarshal json: expected a JSON object, got \\"n\\" at offset 0'],
    [
      '{"op":"write"',
      'failed to unmarshal json: expected \\",\\" or \\"}\\", got the end at offset 13',
    ],
    [
      '{"op":"write","key":"key0","version":1.5}',
      'failed to unmarshal json: expected version to be a signed 64-bit integer, got 1.5',
    ],
    [
      '{"op":"write","key":"key0","version":"12"}',
      'failed to unmarshal json: expected version to be a signed 64-bit integer, got a string',
    ],
    [
      '{"op":"write","key":0,"version":1}',
      'failed to unmarshal json: expected key to be a string, got 0',
    ],
    ['{}', 'unknown op: '],
    ['{"op":"delete","key":"key0"}', 'unknown op: delete'],
    ['{"op":"Write","key":"key0","version":1}', 'unknown op: Write'],
  ])('that is not understood is refused, logged, and changes nothing: %s', async (body, err) => {
    const { ask, outcomes } = await start();
    expect(await ask(body)).toEqual([400, `{"val":"","version":-1,"err":"${err}"}`]);
    expect(outcomes).toMatchObject([{ result: 'invalid', reason: err.replaceAll('\\"', '"') }]);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
  });

  it('is observed once it is answered, with what became of it', async () => {
    const { ask, outcomes } = await start();
    for (const version of [1, 2]) await ask(`{"op":"write","key":"key0","version":${version}}`);
    await ask('{"op":"read","key":"other"}');
    const reason = 'given version (2) is different from the existing version (1)';
    const common = {
      at: expect.closeTo(Date.now(), -5),
      seconds: expect.closeTo(0, 0),
      val: '',
    };
    expect(outcomes).toEqual([
      {
        ...common,
        op: 'write',
        key: 'key0',
        token: 1n,
        fenced: true,
        result: 'accepted',
        reason: '',
      },
      { ...common, op: 'write', key: 'key0', token: 2n, fenced: false, result: 'refused', reason },
      {
        ...common,
        op: 'read',
        key: 'other',
        token: 0n,
        fenced: false,
        result: 'not found',
        reason: '',
      },
    ]);
  });

  it.each(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])(
    'may not be a %s',
    async (method) => {
      const { dial } = await start();
      const socket = await dial();
      socket.write(wire(`${method} /any`, sized(100)));
      const answer = await text(socket);
      expect(answer).toMatch(/^HTTP\/1\.1 405 Method Not Allowed\r\n/);
      expect(answer).toMatch(/\r\nAllow: POST\r\n/);
      const err = `expected a POST with one JSON request as its body, got ${method}`;
      const body = method === 'HEAD' ? '' : `{"val":"","version":-1,"err":"${err}"}`;
      expect(answer.split('\r\n\r\n')[1]).toBe(body);
    },
  );

  it('may not be compressed', async () => {
    const { ask } = await start();
    const init = { headers: { 'content-encoding': 'gzip' } };
    expect(await ask(gzipSync(READ), init)).toEqual([
      415,
      '{"val":"","version":-1,"err":"expected the body not to be encoded, got gzip"}',
    ]);
    expect(await ask(READ, { headers: { 'content-encoding': 'Identity' } })).toEqual([
      200,
      NOT_FOUND,
    ]);
  });
});

describe('a body', () => {
  it('may have 1 MiB and not a byte more', async () => {
    const { ask } = await start();
    expect(await ask(sized(MIB + 1))).toEqual([413, TOO_LARGE]);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
    const [status, answer] = await ask(sized(MIB));
    expect([status, answer.slice(-19)]).toEqual([200, ',"version":7,"err":""}'.slice(-19)]);
  });

  it('that is announced as too large is answered although the client still sends it', async () => {
    const { dial } = await start();
    const socket = await dial();
    const size = 16 * MIB;
    socket.pause();
    socket.write(`POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${size}\r\n\r\n`);
    await once(socket, 'readable');
    await new Promise((sent) => socket.write(Buffer.alloc(size), sent));
    socket.write(wire('POST /', READ));
    expect(await text(socket)).toMatch(
      /^HTTP\/1\.1 413 Payload Too Large\r\n.*at most 1048576 bytes"}HTTP\/1\.1 200 OK\r\n.*"key not found"}$/s,
    );
  });

  it('that never ends is answered as soon as it is too large', async () => {
    const { dial } = await start();
    const socket = await dial();
    socket.write('POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
    socket.write(`${(MIB + 1).toString(16)}\r\n${'x'.repeat(MIB + 1)}`);
    const [answer] = await once(socket, 'data');
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 413 .*at most 1048576 bytes"}$/s);
    expect(socket.readableEnded).toBe(false);
  });

  it('that breaks off changes nothing and leaves no trace', async () => {
    const { ask, dial, outcomes } = await start();
    for (const [size, sent] of [
      [100, 50],
      [100, 0],
      [2 * MIB, 1000],
    ] as const) {
      const socket = await dial();
      socket.write(
        `POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${size}\r\n\r\n${sized(100).slice(0, sent)}`,
      );
      socket.resetAndDestroy();
      await once(socket, 'close');
    }
    const socket = await dial();
    socket.end(`POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 101\r\n\r\n${sized(100)}`);
    await once(socket.resume(), 'close');
    expect(outcomes).toEqual([]);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
  });
});

describe('the app', () => {
  it('says so when its store fails, and goes on', async () => {
    const store = new MemoryStore();
    store.update = () => Promise.reject(new Error('disk\non fire'));
    const { ask, outcomes } = await start({ store });
    expect(await ask(sized(100))).toEqual([
      500,
      '{"val":"","version":-1,"err":"failed to handle the request: Error: disk\\non fire"}',
    ]);
    expect(outcomes).toMatchObject([
      {
        op: 'write',
        result: 'failed',
        reason: 'failed to handle the request: Error: disk\non fire',
      },
    ]);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
  });

  it('cuts off a client that asks and asks and takes no answer, and serves the others', async () => {
    const { ask, dial } = await start();
    // The larger the answers, the sooner nothing more of them fits into the system's buffers; from
    // 16 KiB on it would be node that reads no more requests.
    await ask(sized(10_000));
    const socket = await dial();
    const cut = new Promise((resolve) => socket.on('close', resolve));
    const request = `POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${READ.length}\r\n\r\n${READ}`;
    const requests = request.repeat(500);
    const pump = () => {
      while (!socket.destroyed && socket.write(requests));
    };
    socket.pause().on('drain', pump);
    pump();
    await cut;
    expect(await ask('{"op":"read","key":"other"}')).toEqual([200, NOT_FOUND]);
  });

  it('works on one of many pipelined requests at a time, so that unread answers do not pile up', async () => {
    let reads = 0;
    class Counting extends MemoryStore {
      override read(key: string) {
        reads++;
        return super.read(key);
      }
    }
    const { ask, dial } = await start({ store: new Counting() });
    await ask(sized(MIB));
    const socket = await dial();
    const request = `POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${READ.length}\r\n\r\n${READ}`;
    const count = 100;
    socket.pause().write(request.repeat(count));
    await once(socket, 'readable');
    for (let i = 0; i < 20; i++) await ask('{"op":"write","key":"other"}');
    expect(reads).toBeGreaterThan(0);
    expect(reads).toBeLessThan(count / 2);
    socket.resume();
    while (reads < count) await once(socket, 'data');
  });
});

describe('who may talk to the app', () => {
  const WRITE = '{"op":"write","key":"key0","val":"v","version":1}';

  it.each([
    ['a page of another origin', { origin: 'http://evil.example' }],
    ['a page in a sandbox', { origin: 'null' }],
    ['a page of a sister host, by what the browser says', { 'sec-fetch-site': 'same-site' }],
    ['a page behind a name that was pointed here', { host: 'evil.example:8080' }],
  ])('not %s, and nothing is written', async (_who, headers) => {
    const { ask, raw, outcomes } = await start();
    const [status, body] = await raw('POST', '/', headers, WRITE);
    expect(status).toBe(403);
    expect(JSON.parse(body)).toEqual({ val: '', version: -1, err: expect.stringMatching(/./) });
    for (const path of ['/', '/events', '/metrics', '/healthz']) {
      expect((await raw('GET', path, headers))[0]).toBe(403);
    }
    expect(outcomes).toEqual([]);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
  });

  it('without the token nobody, and nothing is written or shown', async () => {
    const { raw, outcomes } = await start({ token: 's3cret' });
    for (const headers of [{}, { authorization: 'Bearer wrong' }]) {
      const [status, body, answered] = await raw('POST', '/', headers, WRITE);
      expect(status).toBe(401);
      expect(answered['www-authenticate']).toBe('Basic realm="storage"');
      expect(JSON.parse(body).err).toMatch(/^expected the token of this storage/);
      for (const path of ['/', '/events', '/metrics', '/script.js']) {
        expect((await raw('GET', path, headers))[0]).toBe(401);
      }
    }
    expect(outcomes).toEqual([]);
  });

  it('with the token: programs by bearer, people by the password that their browser asks for', async () => {
    const { raw } = await start({ token: 's3cret' });
    const basic = `Basic ${Buffer.from('me:s3cret').toString('base64')}`;
    for (const authorization of ['Bearer s3cret', basic]) {
      expect((await raw('POST', '/', { authorization }, WRITE))[0]).toBe(200);
      expect((await raw('GET', '/', { authorization }))[0]).toBe(200);
    }
  });

  it('about its health, everybody, but what is wrong is told only with the token', async () => {
    const store = new MemoryStore();
    const { raw } = await start({ store, token: 's3cret' });
    expect((await raw('GET', '/healthz')).slice(0, 2)).toEqual([200, 'ok\n']);
    vi.spyOn(store, 'check').mockRejectedValue(new Unavailable('no /home/me/data'));
    expect((await raw('GET', '/healthz')).slice(0, 2)).toEqual([503, 'unavailable\n']);
    const told = await raw('GET', '/healthz', { authorization: 'Bearer s3cret' });
    expect(told.slice(0, 2)).toEqual([503, 'no /home/me/data\n']);
  });
});

describe('the health', () => {
  it('is bad while the store is gone', async () => {
    const store = new MemoryStore();
    const { raw } = await start({ store });
    const check = vi.spyOn(store, 'check').mockRejectedValue(new Unavailable('the disk is gone'));
    expect((await raw('GET', '/healthz')).slice(0, 2)).toEqual([503, 'the disk is gone\n']);
    check.mockRestore();
    expect((await raw('GET', '/healthz')).slice(0, 2)).toEqual([200, 'ok\n']);
  });

  it('is asked for once at a time, however many want to know', async () => {
    const store = new MemoryStore();
    const { raw } = await start({ store });
    const check = vi.spyOn(store, 'check');
    let done = () => {};
    check.mockReturnValueOnce(
      new Promise((resolve) => {
        done = resolve;
      }),
    );
    const asked = [1, 2, 3].map(() => raw('GET', '/healthz'));
    await vi.waitFor(() => expect(check).toHaveBeenCalled());
    done();
    for (const [status] of await Promise.all(asked)) expect(status).toBe(200);
    expect(check.mock.calls.length).toBeLessThan(4);
  });

  it('is bad while etcd does not say who holds the lock, good when nobody does', async () => {
    const holder = vi.fn(async (): Promise<undefined> => undefined);
    const { raw } = await start({ rule: rules.holder, lock: { gone: 'gone', holder } });
    expect((await raw('GET', '/healthz')).slice(0, 2)).toEqual([200, 'ok\n']);
    holder.mockRejectedValue(new Unavailable('etcd is silent'));
    expect((await raw('GET', '/healthz')).slice(0, 2)).toEqual([503, 'etcd is silent\n']);
  });
});

describe('the metrics', () => {
  it('count requests by what became of them, stale writes by rule, and tell the highest token', async () => {
    const { ask, raw } = await start({ rule: rules.monotonic });
    const send = (op: string, version: number) =>
      ask(`{"op":"${op}","key":"k","val":"v","version":${version}}`);
    for (const version of [7, 6, 5, 9, 0]) await send('write', version);
    await ask('{"op":"read","key":"new","version":11}');
    await send('read', 8);
    await send('read', 0);
    await ask('{"op":"read","key":"other"}');
    await send('delete', 1000);
    await ask('no json');
    const [status, text, headers] = await raw('GET', '/metrics');
    expect(status).toBe(200);
    expect(headers['content-type']).toMatch(/^text\/plain; version=0\.0\.4/);
    const values = Object.fromEntries(
      text
        .split('\n')
        .filter((line) => /^[^#]/.test(line))
        .map((line) => line.split(/ (?=\S+$)/)),
    );
    expect(values).toMatchObject({
      'storage_requests_total{op="write",result="accepted"}': '2',
      'storage_requests_total{op="write",result="refused"}': '3',
      'storage_requests_total{op="read",result="refused"}': '1',
      'storage_requests_total{op="read",result="accepted"}': '1',
      'storage_requests_total{op="read",result="not found"}': '2',
      'storage_requests_total{op="unknown",result="invalid"}': '2',
      'storage_stale_writes_refused_total{rule="monotonic"}': '3',
      'storage_request_duration_seconds_count{op="write"}': '5',
      storage_highest_token: '11',
    });
  });

  it('do not take for accepted a token that the rule did not look at', async () => {
    const { ask, raw } = await start();
    await ask('{"op":"write","key":"k","val":"v","version":5}');
    await ask('{"op":"read","key":"k","version":1000}');
    expect((await raw('GET', '/metrics'))[1]).toContain('\nstorage_highest_token 5\n');
  });

  it('count who was turned away', async () => {
    const { ask, raw } = await start({ token: 's3cret' });
    await ask(READ);
    await raw('POST', '/', { host: 'evil.example' });
    const headers = { authorization: 'Bearer s3cret' };
    await raw('POST', '/', { ...headers, 'content-encoding': 'gzip' });
    await raw('PUT', '/', headers);
    const [, text] = await raw('GET', '/metrics', headers);
    for (const status of [401, 403, 405, 415]) {
      expect(text).toContain(`\nstorage_denied_requests_total{status="${status}"} 1\n`);
    }
  });

  it('count each answer to who was turned away once, in a rush of half-sent bodies and resets', async () => {
    const { dial, raw } = await start({ token: 's3cret' });
    const request = `POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${READ.length}\r\n\r\n${READ}`;
    const half = request.slice(0, -5);
    // What is sent, how many answers it gets, and what comes after them.
    const kinds: [string, number, (socket: Socket) => void][] = [
      [request, 1, (socket) => void socket.end()],
      [request.repeat(10), 10, (socket) => void socket.destroy()],
      [half, 1, (socket) => void socket.resetAndDestroy()],
      [half, 1, (socket) => void socket.end(request.slice(-5))],
    ];
    let answers = 0;
    const client = async (index: number) => {
      for (let round = 0; round < 20; round++) {
        const [sent, count, leave] = kinds[(index + round) % kinds.length] ?? expect.fail();
        const socket = await dial();
        socket.write(sent);
        let came = '';
        while (came.split('HTTP/1.1 401').length <= count) came += (await once(socket, 'data'))[0];
        leave(socket);
        answers += count;
      }
    };
    await Promise.all(Array.from({ length: 32 }, (_, index) => client(index)));
    const [, text] = await raw('GET', '/metrics', { authorization: 'Bearer s3cret' });
    expect(text).toContain(`\nstorage_denied_requests_total{status="401"} ${answers}\n`);
  });

  it('count the stale writes from zero on, so that a first one shows', async () => {
    const { raw } = await start();
    const [, text] = await raw('GET', '/metrics');
    expect(text).toContain('\nstorage_stale_writes_refused_total{rule="equal"} 0\n');
  });
});

describe('the page', () => {
  it('comes with headers that let it load nothing from elsewhere and be in no frame', async () => {
    const { raw } = await start();
    const [status, body, headers] = await raw('GET', '/');
    expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
    expect(body).toMatch(/^<!doctype html>/i);
    expect(headers['content-security-policy']).toBe(
      "default-src 'none';script-src 'self';style-src 'self';connect-src 'self';img-src 'self';base-uri 'none';form-action 'none';frame-ancestors 'none'",
    );
    expect(headers).toMatchObject({
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
    });
    expect(headers).not.toHaveProperty('x-powered-by');
    expect(headers).not.toHaveProperty('strict-transport-security');
  });

  it('is only where it is: elsewhere GET is no method of storage', async () => {
    const { raw } = await start();
    for (const path of ['/key0', '/page.ts', '/../app.ts', '/%2e%2e/app.ts', '/%', '//']) {
      expect([path, (await raw('GET', path))[0]]).toEqual([path, 405]);
    }
  });

  it('leaves every path to the protocol when it is a POST', async () => {
    const { raw } = await start();
    for (const path of [
      '/',
      '/healthz',
      '/metrics',
      '/events',
      '/style.css',
      '/a/b?c',
      '/%',
      '*',
    ]) {
      expect((await raw('POST', path, {}, READ)).slice(0, 2)).toEqual([200, NOT_FOUND]);
    }
  });
});

it('what a store has no room for gets 507, what it cannot have now 503, both with the reason', async () => {
  const store = new MemoryStore();
  const { ask, outcomes } = await start({ store });
  for (const [status, error] of [
    [507, new NoRoom('storage is full')],
    [503, new Unavailable('the disk is gone; nothing was written')],
  ] as const) {
    vi.spyOn(store, 'update').mockRejectedValueOnce(error);
    expect(await ask(sized(100))).toEqual([
      status,
      `{"val":"","version":-1,"err":"${error.message}"}`,
    ]);
    expect(outcomes.pop()).toMatchObject({ result: 'failed', reason: error.message });
  }
});
