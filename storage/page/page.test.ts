import { once } from 'node:events';
import type { Server, ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import express from 'express';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { rules } from '../fence.js';
import type { Outcome } from '../outcome.js';
import { type DecodeError, decodeRequest, encodeRequest } from '../protocol.js';
import { MemoryStore } from '../stores/memory.js';
import { type Listing, Unavailable } from '../stores/store.js';
import { createPage } from './page.js';

const TOKEN = 4703569812595502721n;

const outcome = (change: Partial<Outcome> = {}): Outcome => ({
  at: 1_796_000_000_000,
  op: 'write',
  key: 'key0',
  val: '',
  token: TOKEN,
  fenced: true,
  result: 'accepted',
  reason: '',
  seconds: 0.001,
  ...change,
});
/** How the page gets to see it. */
const shown = ({ seconds, fenced, val, ...rest }: Outcome) => ({ ...rest, token: `${rest.token}` });

// Intervals pass when a test says so; sockets live in real time.
beforeEach(
  () => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] }),
);
afterEach(() => void vi.useRealTimers());

/** Milliseconds between two events of one kind when there is much to tell, and between two beats. */
const [TICK, BEAT] = [250, 15_000];

async function start({ rule = 'equal' }: { rule?: keyof typeof rules } = {}) {
  const store = new MemoryStore();
  const list = vi.spyOn(store, 'list');
  const stop = new AbortController();
  const page = createPage({ store, rule: rules[rule], signal: stop.signal });
  const responses: ServerResponse[] = [];
  const app = express();
  app.use((_req, res, next) => {
    responses.push(res);
    next();
  });
  app.use(page.router);
  app.use((req, res) => void res.status(418).send(`passed on: ${req.method}`));
  const server: Server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    stop.abort();
    server.close().closeAllConnections();
  });
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  return {
    ...{ store, list, stop, server, url, responses, observe: page.observe },
    put: (key: string, val: string | undefined, version = TOKEN) =>
      store.update(key, () => ({ entry: { val, version } })),
    watch: () => Stream.open(`${url}/events`),
    async dial(): Promise<Socket> {
      const socket = connect(port, '127.0.0.1').on('error', () => {});
      onTestFinished(() => void socket.destroy());
      await once(socket, 'connect');
      return socket;
    },
  };
}

type Event = { name: string; data: unknown };

/** The events of one connection, in order. */
class Stream {
  static async open(url: string): Promise<Stream> {
    const leave = new AbortController();
    onTestFinished(() => leave.abort());
    const response = await fetch(url, { signal: leave.signal });
    expect(response.status).toBe(200);
    expect(response.headers.get('Content-Type')).toBe('text/event-stream');
    return new Stream(response, () => leave.abort());
  }

  readonly #events: AsyncGenerator<Event>;

  private constructor(
    response: Response,
    /** Closes the connection, as a page does that is left. */
    readonly leave: () => void,
  ) {
    this.#events = events(response);
  }

  /** Resolves to null when the server has ended the stream. */
  async next(): Promise<Event | null> {
    const { value } = await this.#events.next();
    return value ?? null;
  }

  /** The data of the next event, which is to be of this kind. */
  async expect(name: string): Promise<unknown> {
    const event = await this.next();
    expect(event?.name).toBe(name);
    return event?.data;
  }
}

async function* events({ body }: Response): AsyncGenerator<Event> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const chunk of body ?? []) {
    const blocks = (rest + decoder.decode(chunk, { stream: true })).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const [, name = '', data = ''] = /^event: ([^\n]*)\ndata: ([^\n]*)$/m.exec(block) ?? [];
      yield { name, data: data && JSON.parse(data) };
    }
  }
}

const listing = (...entries: [key: string, val: string | null, token?: bigint][]) => ({
  entries: entries.map(([key, val, token = TOKEN]) => ({ key, val, token: `${token}` })),
  more: false,
});
const counts = (some: object = {}) => ({
  ...{ accepted: 0, refused: 0, 'not found': 0, failed: 0, invalid: 0 },
  ...some,
});

describe('the files of the page', () => {
  it.each([
    ['/', 'text/html; charset=utf-8', '<!doctype html>'],
    ['/style.css', 'text/css; charset=utf-8', ':root {'],
    ['/script.js', 'text/javascript; charset=utf-8', 'new EventSource'],
    ['/icon.svg', 'image/svg+xml', '<svg '],
  ])('are served: %s', async (path, type, content) => {
    const { url } = await start();
    const response = await fetch(url + path);
    expect(response.status).toBe(200);
    expect(response.headers.get('Content-Type')).toBe(type);
    expect(await response.text()).toContain(content);
    const head = await fetch(url + path, { method: 'HEAD' });
    expect([head.status, await head.text()]).toEqual([200, '']);
  });

  it.each([
    '/index.html',
    '/page.ts',
    '/feed.ts',
    '/STYLE.CSS',
    '/style.css/',
    '/events/',
    '/../fence.ts',
    '/%2e%2e/fence.ts',
    '/constructor',
  ])('are all there is: not %s', async (path) => {
    const { dial } = await start();
    const socket = await dial();
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1.1 418 .*\r\n\r\npassed on: GET$/s);
  });

  it.each(['POST', 'PUT', 'DELETE', 'OPTIONS'])('leave a %s to others', async (method) => {
    const { url } = await start();
    for (const path of ['/', '/events', '/script.js']) {
      const response = await fetch(url + path, { method });
      expect(await response.text()).toBe(`passed on: ${method}`);
    }
  });
});

describe('the events', () => {
  it('begin with the rule, the last decisions and the keys', async () => {
    const { put, observe, watch } = await start({ rule: 'monotonic' });
    await put('key0', 'a');
    await put('key1', undefined, -(2n ** 63n));
    const decisions = [
      outcome(),
      outcome({ result: 'refused', reason: 'stale', token: 2n ** 63n - 1n }),
      outcome({ op: '', key: '', token: 0n, result: 'invalid', reason: 'no JSON' }),
    ];
    decisions.forEach(observe);
    const stream = await watch();
    expect(await stream.expect('snapshot')).toEqual({
      about: {
        rule: 'monotonic',
        accepts: 'A key accepts a token that is not lower than the highest it has seen.',
        client: 'npx client 2 --token revision',
      },
      decisions: decisions.map(shown),
      counts: counts({ accepted: 1, refused: 1, invalid: 1 }),
    });
    expect(await stream.expect('keys')).toEqual(
      listing(['key0', 'a'], ['key1', null, -(2n ** 63n)]),
    );
  });

  it('show a decision at once and the keys soon after it, to every watcher', async () => {
    const { put, observe, watch } = await start();
    const streams = [await watch(), await watch()];
    for (const stream of streams) {
      await stream.expect('snapshot');
      expect(await stream.expect('keys')).toEqual(listing());
    }
    await put('key0', 'a');
    observe(outcome());
    for (const stream of streams) {
      expect(await stream.expect('decisions')).toEqual({
        decisions: [shown(outcome())],
        counts: counts({ accepted: 1 }),
      });
    }
    vi.advanceTimersByTime(TICK);
    for (const stream of streams) {
      expect(await stream.expect('keys')).toEqual(listing(['key0', 'a']));
    }
  });

  it('come together when there are many, and no more of them than are shown', async () => {
    const { observe, watch, list } = await start();
    const stream = await watch();
    await stream.expect('snapshot');
    await stream.expect('keys');
    for (let i = 0; i < 1000; i++) observe(outcome({ token: BigInt(i) }));
    vi.advanceTimersByTime(TICK);
    const tokens = async () => {
      const { decisions } = (await stream.expect('decisions')) as { decisions: Outcome[] };
      return decisions.map(({ token }) => Number(token));
    };
    expect(await tokens()).toEqual([0]);
    expect(await tokens()).toEqual(Array.from({ length: 100 }, (_, i) => 900 + i));
    expect(list).toHaveBeenCalledTimes(2);
    const late = await watch();
    expect(await late.expect('snapshot')).toMatchObject({ counts: counts({ accepted: 1000 }) });
  });

  it('tell no decision twice to a watcher who comes amid many', async () => {
    const { observe, watch } = await start();
    const first = await watch();
    for (const token of [1n, 2n]) observe(outcome({ token }));
    const second = await watch();
    expect(await second.expect('snapshot')).toMatchObject({
      decisions: [{ token: '1' }, { token: '2' }],
    });
    await second.expect('keys');
    vi.advanceTimersByTime(TICK);
    observe(outcome({ token: 3n }));
    expect(await second.expect('decisions')).toMatchObject({ decisions: [{ token: '3' }] });
    for (const name of ['snapshot', 'keys', 'decisions', 'decisions', 'decisions']) {
      await first.expect(name);
    }
  });

  it('show within a second what another process wrote, and nothing when nothing changed', async () => {
    const { put, watch, list } = await start();
    const stream = await watch();
    await stream.expect('snapshot');
    await stream.expect('keys');
    for (let second = 0; second < 3; second++) {
      vi.advanceTimersByTime(1000);
      await new Promise(setImmediate);
    }
    expect(list).toHaveBeenCalledTimes(4);
    await put('key0', 'of another');
    vi.advanceTimersByTime(1000);
    expect(await stream.expect('keys')).toEqual(listing(['key0', 'of another']));
  });

  it('cut long texts, between characters', async () => {
    const { put, observe, watch } = await start();
    const long = `${'x'.repeat(199)}\u{1f600}${'y'.repeat(2 ** 20)}`;
    const cut = `${'x'.repeat(199)}…`;
    await put(long, long);
    observe(outcome({ key: long, result: 'failed', reason: long }));
    const stream = await watch();
    expect(await stream.expect('snapshot')).toMatchObject({
      decisions: [{ key: cut, reason: cut }],
    });
    expect(await stream.expect('keys')).toEqual(listing([cut, cut]));
  });

  it('say that there are more keys than are shown', async () => {
    const { put, watch } = await start();
    for (let i = 0; i < 101; i++) await put(`${i}`, '');
    const stream = await watch();
    await stream.expect('snapshot');
    const keys = (await stream.expect('keys')) as ReturnType<typeof listing>;
    expect([keys.entries.length, keys.more]).toEqual([100, true]);
  });

  it('carry texts with line ends and the like in one piece', async () => {
    const { put, watch } = await start();
    const text = 'a\n\nevent: keys\r\ndata: {}\u2028\u0000\ud800';
    await put(text, text);
    const stream = await watch();
    await stream.expect('snapshot');
    expect(await stream.expect('keys')).toEqual(listing([text, text]));
  });

  it('tell that the store is unavailable, and when it is back', async () => {
    const { list, watch } = await start();
    list.mockRejectedValueOnce(new Unavailable('etcd does not answer'));
    const stream = await watch();
    await stream.expect('snapshot');
    expect(await stream.expect('keys')).toEqual({ unavailable: 'etcd does not answer' });
    vi.advanceTimersByTime(1000);
    expect(await stream.expect('keys')).toEqual(listing());
  });

  it('ask a store that does not answer only once', async () => {
    const { list, observe, watch } = await start();
    let answer = (_: Listing) => {};
    list.mockReturnValueOnce(
      new Promise((resolve) => {
        answer = resolve;
      }),
    );
    const stream = await watch();
    await stream.expect('snapshot');
    observe(outcome());
    await stream.expect('decisions');
    vi.advanceTimersByTime(10_000);
    expect(list).toHaveBeenCalledTimes(1);
    answer({ entries: [], more: false });
    expect(await stream.expect('keys')).toEqual(listing());
  });

  it('beat every 15 s when there is nothing else', async () => {
    const { watch } = await start();
    const stream = await watch();
    await stream.expect('snapshot');
    await stream.expect('keys');
    for (let i = 0; i < 3; i++) {
      vi.advanceTimersByTime(BEAT);
      await stream.expect('beat');
    }
  });
});

describe('watching', () => {
  it('costs one timer for all, and nothing when nobody does', async () => {
    const { observe, list, responses, watch } = await start();
    observe(outcome());
    expect([vi.getTimerCount(), list.mock.calls.length]).toEqual([0, 0]);
    for (let round = 0; round < 2; round++) {
      const streams = [await watch(), await watch()];
      expect(vi.getTimerCount()).toBe(1);
      const gone = responses.slice(-2).map((res) => once(res, 'close'));
      for (const stream of streams) stream.leave();
      await Promise.all(gone);
      expect(vi.getTimerCount()).toBe(0);
    }
  });

  it('is for 50 at most', async () => {
    const { url, responses, watch } = await start();
    const streams = await Promise.all(Array.from({ length: 50 }, watch));
    const refused = await fetch(`${url}/events`);
    expect(refused.status).toBe(503);
    expect(await refused.text()).toMatch(/at most 50 /);
    const gone = Promise.race(responses.slice(0, 50).map((res) => once(res, 'close')));
    streams[0]?.leave();
    await gone;
    await (await watch()).expect('snapshot');
  });

  it('is not for requests that wait behind a stream on its own connection', async () => {
    const { dial, responses, watch } = await start();
    const socket = await dial();
    socket.write('GET /events HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(30));
    while (responses.length < 30) await new Promise(setImmediate);
    await Promise.all(Array.from({ length: 49 }, watch));
    const gone = once(responses[0] ?? socket, 'close');
    socket.destroy();
    await gone;
    await watch();
  });

  it('opens no stream for a HEAD', async () => {
    const { url } = await start();
    const response = await fetch(`${url}/events`, { method: 'HEAD' });
    expect(response.headers.get('Content-Type')).toMatch(/^text\/event-stream/);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('ends for a reader who does not take it, and goes on for others', async () => {
    const { dial, observe, responses, watch } = await start();
    const socket = await dial();
    socket.pause().write('GET /events HTTP/1.1\r\nHost: x\r\n\r\n');
    while (responses.length < 1) await new Promise(setImmediate);
    const [slow] = responses;
    const other = await watch();
    await other.expect('snapshot');
    let most = 0;
    const big = '\u0000'.repeat(200);
    for (let sent = 0; sent < 200 && !slow?.destroyed; sent++) {
      for (let i = 0; i < 100; i++) observe(outcome({ key: big, reason: big }));
      vi.advanceTimersByTime(TICK);
      most = Math.max(most, slow?.writableLength ?? 0);
      // The other takes what is sent before there is more.
      for (let told = false; !told; ) told = (await other.next())?.name === 'decisions';
    }
    expect(slow?.destroyed).toBe(true);
    expect(most).toBeGreaterThan(2 ** 20);
    expect(most).toBeLessThan(2 ** 21);
    expect(vi.getTimerCount()).toBe(1);
  });

  it('ends when the server stops', async () => {
    const { observe, server, stop, url, watch } = await start();
    const stream = await watch();
    await stream.expect('snapshot');
    await stream.expect('keys');
    stop.abort();
    expect(await stream.next()).toBeNull();
    expect(vi.getTimerCount()).toBe(0);
    observe(outcome());
    expect((await fetch(`${url}/events`)).status).toBe(503);
    server.close().closeIdleConnections();
    await once(server, 'close');
  });
});

describe('what is kept of a decision is its texts, and nothing of the body that these came from', () => {
  const rest = 'x'.repeat(2 ** 20);
  const digits = '1'.repeat(30);
  it.each<[string, (i: number) => Partial<Outcome>]>([
    ['a key', (i) => decode(encodeRequest({ op: 'write', key: key(i), val: rest, version: 1n }))],
    ['a key in other JSON', (i) => decode(`{ "key": "${key(i)}", "val": "${rest}" }`)],
    ['what is wrong', (i) => ({ reason: failure(`{"version":${digits}${i},"val":"${rest}"}`) })],
  ])('%s', (_, change) => {
    setFlagsFromString('--expose-gc');
    const gc = runInNewContext('gc') as () => void;
    const page = createPage({
      store: new MemoryStore(),
      rule: rules.equal,
      signal: new AbortController().signal,
    });
    const used = () => {
      gc();
      const { heapUsed, external } = process.memoryUsage();
      return (heapUsed + external) / 2 ** 20;
    };
    const before = used();
    for (let i = 0; i < 200; i++) page.observe(outcome(change(i)));
    // 100 of these bodies and more, if they were kept; what is let go of may take a while to go.
    expect(used() - before).toBeLessThan(60);
  });

  const key = (i: number) => `the key of request ${i}`;

  function decode(text: string): Partial<Outcome> {
    return { key: decodeRequest(Buffer.from(text)).key };
  }

  function failure(text: string): string {
    try {
      decodeRequest(Buffer.from(text));
    } catch (error) {
      return (error as DecodeError).message;
    }
    throw new Error('expected an error');
  }
});
