// Against servers in this process; the program against the real storage is in main.test.ts.

import { getEventListeners, once } from 'node:events';
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type RequestListener,
} from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Refused, write } from './storage-client.js';

const record = { key: 'key0', value: 'value from client 1', version: 1n };
const accepted = '{"val":"","version":-1,"err":""}';

test('a write is one POST of JSON with the fields in the order that Go writes them', async () => {
  const { url, requests } = await storage(accepted);
  await write({ url }, { ...record, value: 'say "hi"\n' });
  expect(requests).toEqual([
    {
      method: 'POST',
      type: 'application/json',
      body: '{"op":"write","key":"key0","val":"say \\"hi\\"\\n","version":1}',
    },
  ]);
});

test.each([
  4703569812595502721n,
  4703569812595502727n,
  2n ** 53n + 1n,
  2n ** 63n - 1n,
  -(2n ** 63n),
  0n,
])('version %d arrives with all its digits', async (version) => {
  const { url, requests } = await storage(accepted);
  await write({ url }, { ...record, version });
  expect(requests[0]?.body).toMatch(new RegExp(`"version":${version}}$`));
});

test('a refusal is an error of its own, with the text of storage as upstream prints it', async () => {
  const err = 'given version (1) is different from the existing version (2)';
  const { url } = await storage(`{"val":"","version":-1,"err":"${err}"}`);
  const error = await write({ url }, record).catch((error: unknown) => error);
  expect(error).toBeInstanceOf(Refused);
  expect(error).toMatchObject({ name: 'Refused', code: 'REFUSED', message: `error: ${err}` });
});

test('an answer with another status than 200 is no refusal by the fence, and tells its text', async () => {
  const { url } = await storage('{"val":"","version":-1,"err":"unknown op"}', 400);
  const error = await write({ url }, record).catch((error: unknown) => error);
  expect(error).not.toBeInstanceOf(Refused);
  expect(String(error)).toBe('Error: storage answered with status 400: unknown op');
  const proxy = await storage('<html>Bad Gateway</html>', 502);
  await expect(write(proxy, record)).rejects.toThrow(/^storage answered with status 502$/);
});

test.each([
  ['nothing', ''],
  ['a page', '<html>404</html>'],
  ['half an answer', accepted.slice(0, -1)],
  ['something else than an object', '[]'],
  ['a field of another type', '{"err":1}'],
])('%s for an answer is an error that says so, not a refusal', async (_what, answer) => {
  const { url } = await storage(answer);
  const error = await write({ url }, record).catch((error: unknown) => error);
  expect(error).not.toBeInstanceOf(Refused);
  expect(String(error)).toMatch(/^Error: failed to unmarshal response json: expected /);
});

test('an answer in many pieces is read to its end', async () => {
  const { url } = await serve(async (_request, response) => {
    response.flushHeaders();
    for (const byte of '{"err":"é"}') {
      for (const half of Buffer.from(byte)) {
        await new Promise((resolve) => response.write(Buffer.of(half), resolve));
      }
    }
    response.end();
  });
  await expect(write({ url }, record)).rejects.toThrow('error: é');
});

test('that nothing listens is told with the address', async () => {
  const { url, server } = await storage(accepted);
  server.close();
  await once(server, 'close');
  await expect(write({ url }, record)).rejects.toThrow(
    `failed to send a request to storage: connect ECONNREFUSED ${new URL(url).host}`,
  );
});

test('that nothing listens on any address of a name is told for each of them', async () => {
  const message = await write({ url: 'http://localhost:1' }, record).catch(
    (error: Error) => error.message,
  );
  expect(message).toContain('failed to send a request to storage: connect ECONNREFUSED ');
  expect(message).toContain('127.0.0.1:1');
});

test('a connection that is cut before or within the answer is an error', async () => {
  const before = await serve((request) => request.socket.destroy());
  await expect(write(before, record)).rejects.toThrow(
    'failed to send a request to storage: socket hang up',
  );
  const within = await serve((_request, response) => {
    response.writeHead(200, { 'content-length': 100 });
    response.write(accepted, () => response.socket?.destroy());
  });
  await expect(write(within, record)).rejects.toThrow(
    'failed to send a request to storage: aborted',
  );
});

test('what does not speak HTTP is an error', async () => {
  const { url } = await listening(createServer((socket) => socket.end('SSH-2.0\r\n')));
  await expect(write({ url }, record)).rejects.toThrow(
    'failed to send a request to storage: Parse',
  );
});

test.each(['before', 'within'])('an abort %s the answer ends the write at once', async (when) => {
  const { url, server } = await serve((_request, response) => {
    if (when === 'within') response.write('{');
    response.flushHeaders();
  });
  const control = new AbortController();
  const writing = write({ url }, record, control.signal);
  const [request] = (await once(server, 'request')) as [IncomingMessage];
  control.abort();
  await expect(writing).rejects.toThrow('The operation was aborted');
  await closed(request.socket);
});

test.each<[string, (socket: Socket) => void]>([
  ['nothing', () => {}],
  ['half of the headers', (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-')],
  ['half of the body', (socket) => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{')],
  [
    'a byte now and then',
    (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n');
      const timer = setInterval(() => socket.write(' '), 50);
      socket.on('error', () => {}).on('close', () => clearInterval(timer));
    },
  ],
])(
  'that storage sends %s and no more in its time is told, and that the write may have happened',
  async (_, say) => {
    const { url } = await listening(
      createServer((socket) => void socket.once('data', () => say(socket))),
    );
    const { signal } = new AbortController();
    await expect(write({ url, timeout: 0.3 }, record, signal)).rejects.toThrow(
      /^storage did not answer within 0.3 s: it may have written or not$/,
    );
  },
);

test.each([1.005, 2147484, 4294968, Number.MAX_SAFE_INTEGER])(
  '%d s is a limit, too',
  async (timeout) => {
    const { url } = await storage(accepted);
    await write({ url, timeout }, record);
  },
);

test('nothing is sent once the signal has been aborted', async () => {
  const { url, requests } = await storage(accepted);
  await expect(write({ url }, record, AbortSignal.abort())).rejects.toThrow('aborted');
  expect(requests).toEqual([]);
});

test('a write leaves no listener on the signal and no connection', async () => {
  const { url, server } = await storage(accepted);
  const connected: Promise<Socket[]> = once(server, 'connection');
  const { signal } = new AbortController();
  await write({ url }, record, signal);
  await Promise.all((await connected).map(closed));
  await vi.waitFor(() => expect(getEventListeners(signal, 'abort')).toEqual([]));
});

async function closed(socket: Socket): Promise<void> {
  if (!socket.destroyed) await new Promise((resolve) => socket.once('close', resolve));
}

/** A storage that gives everyone the same answer, and what it was asked. */
async function storage(answer: string, status = 200) {
  const requests: { method: unknown; type: unknown; body: string }[] = [];
  const { url, server } = await serve(async (request, response) => {
    const { method, headers } = request;
    requests.push({ method, type: headers['content-type'], body: await text(request) });
    response.writeHead(status).end(answer);
  });
  return { url, server, requests };
}

function serve(handle: RequestListener) {
  const server = createHttpServer(handle);
  onTestFinished(() => server.closeAllConnections());
  return listening(server);
}

async function listening<T extends Server>(server: T): Promise<{ url: string; server: T }> {
  server.listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}
