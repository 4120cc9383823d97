import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createApp } from './app.js';
import { rules } from './fence.js';
import { HttpServer } from './server.js';
import { MemoryStore } from './stores/memory.js';
import type { Store } from './stores/store.js';

const MIB = 2 ** 20;
const READ = '{"op":"read","key":"key0"}';
const NOT_FOUND = '{"val":"","version":-1,"err":"key not found"}';
const TOO_LARGE = '{"val":"","version":-1,"err":"expected the body to be at most 1048576 bytes"}';

async function start(store: Store = new MemoryStore()) {
  const log: string[] = [];
  const app = createApp({ store, rule: rules.equal, log: (line) => log.push(line) });
  const server = await HttpServer.listen(app, { host: '127.0.0.1', port: 0 });
  onTestFinished(() => server.close(0));
  const { port } = server.address;
  return {
    log,
    /** Sends a body and resolves to the answer's status and text. */
    async ask(body: string | Buffer, init: RequestInit = {}): Promise<[number, string]> {
      const response = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body, ...init });
      return [response.status, await response.text()];
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
  `${requestLine} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${body.length}\r\n${headers}\r\n${body}`;

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
      'Connection: close',
      'Content-Length: 45',
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
      'POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n',
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
    const { ask, log } = await start();
    expect(await ask(body)).toEqual([400, `{"val":"","version":-1,"err":"${err}"}`]);
    expect(log).toEqual([err.replaceAll('\\"', '"')]);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
  });

  it('that is understood is not logged, also when it is refused', async () => {
    const { ask, log } = await start();
    for (const version of [1, 2]) await ask(`{"op":"write","key":"key0","version":${version}}`);
    await ask('{"op":"read","key":"other"}');
    expect(log).toEqual([]);
  });

  it.each(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])(
    'may not be a %s',
    async (method) => {
      const { dial } = await start();
      const socket = await dial();
      socket.write(wire(`${method} /`, sized(100)));
      const answer = await text(socket);
      expect(answer).toMatch(/^HTTP\/1\.1 405 Method Not Allowed\r\nAllow: POST\r\n/);
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
    socket.write(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n`);
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
    socket.write('POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
    socket.write(`${(MIB + 1).toString(16)}\r\n${'x'.repeat(MIB + 1)}`);
    const [answer] = await once(socket, 'data');
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 413 .*at most 1048576 bytes"}$/s);
    expect(socket.readableEnded).toBe(false);
  });

  it('that breaks off changes nothing and leaves no trace', async () => {
    const { ask, dial, log } = await start();
    for (const [size, sent] of [
      [100, 50],
      [100, 0],
      [2 * MIB, 1000],
    ] as const) {
      const socket = await dial();
      socket.write(
        `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n${sized(100).slice(0, sent)}`,
      );
      socket.resetAndDestroy();
      await once(socket, 'close');
    }
    const socket = await dial();
    socket.end(`POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n${sized(100)}`);
    await once(socket.resume(), 'close');
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
    expect(log).toEqual([]);
  });
});

describe('the log', () => {
  it('is one line of printable characters, whatever the client sends', async () => {
    const { ask, log } = await start();
    const op = 'a\n\r\t\u0000\u001b[2J\u007f\u009b\u2028\u2029\u202eb\u{e0001}é\u{1f600}';
    const [, answer] = await ask(JSON.stringify({ op }));
    expect(JSON.parse(answer).err).toBe(`unknown op: ${op}`);
    expect(log).toEqual([
      'unknown op: a\\u{a}\\u{d}\\u{9}\\u{0}\\u{1b}[2J\\u{7f}\\u{9b}\\u{2028}\\u{2029}\\u{202e}b\\u{e0001}é\u{1f600}',
    ]);
    await ask('\u001b[2J');
    expect(log[1]).toBe(
      'failed to unmarshal json: expected a JSON object, got "\\u001b" at offset 0',
    );
  });

  it('shortens what is long', async () => {
    const { ask, log } = await start();
    await ask(JSON.stringify({ op: 'x'.repeat(MIB / 2) }));
    expect(log).toEqual([`unknown op: ${'x'.repeat(244)}...`]);
  });
});

describe('the app', () => {
  it('says so when its store fails, and goes on', async () => {
    const memory = new MemoryStore();
    const { ask, log } = await start({
      read: (key) => memory.read(key),
      update: () => Promise.reject(new Error('disk\non fire')),
    });
    expect(await ask(sized(100))).toEqual([
      500,
      '{"val":"","version":-1,"err":"failed to handle the request: Error: disk\\non fire"}',
    ]);
    expect(log).toEqual(['failed to handle the request: Error: disk\\u{a}on fire']);
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
  });

  it('cuts off a client that asks and asks and takes no answer, and serves the others', async () => {
    const { ask, dial } = await start();
    const socket = await dial();
    const cut = new Promise((resolve) => socket.on('close', resolve));
    const request = `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${READ.length}\r\n\r\n${READ}`;
    const requests = request.repeat(500);
    const pump = () => {
      while (!socket.destroyed && socket.write(requests));
    };
    socket.pause().on('drain', pump);
    pump();
    await cut;
    expect(await ask(READ)).toEqual([200, NOT_FOUND]);
  });

  it('works on one of many pipelined requests at a time, so that unread answers do not pile up', async () => {
    const memory = new MemoryStore();
    let reads = 0;
    const { ask, dial } = await start({
      update: (key, decide) => memory.update(key, decide),
      read: (key) => {
        reads++;
        return memory.read(key);
      },
    });
    await ask(sized(MIB));
    const socket = await dial();
    const request = `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${READ.length}\r\n\r\n${READ}`;
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
