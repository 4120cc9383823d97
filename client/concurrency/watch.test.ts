import { describe, expect, inject, test, vi } from 'vitest';
import { Peer } from '../../scripts/lib/peer.js';
import { startProxy } from '../../scripts/lib/proxy.js';
import { OVER, within } from './timing.js';
import { type Watch, Watches } from './watch.js';

const endpoints = inject('etcd');
const [endpoint = ''] = endpoints;

let names = 0;
function newName(): string {
  return `/watch-test/${process.pid}/${++names}`;
}

function watch({ etcd }: Peer, key: string, puts?: boolean): Watch {
  return Watches.of(etcd).add({ key: Buffer.from(key) }, puts);
}

/** The streams that a peer opens from now on. */
function streamsOf({ etcd }: Peer) {
  const spy = vi.spyOn(etcd.watchClient, 'watch');
  return {
    count: () => spy.mock.results.length,
    async last() {
      const stream = await spy.mock.results.at(-1)?.value;
      if (!stream) throw new Error('expected a stream');
      return stream;
    },
  };
}

describe.concurrent('a watch', () => {
  test('tells of a deletion that comes after it was confirmed, and not of a put', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newName();
    using watching = watch(peer, key);
    await watching.confirmed;
    await peer.etcd.put(key).value('');
    expect(await within(100, undefined, watching.changed)).toBe(OVER);
    await peer.etcd.delete().key(key);
    await watching.changed;
  });

  test('tells of a put too when it is asked to', async () => {
    await using peer = await Peer.connect(endpoints);
    const key = newName();
    using watching = watch(peer, key, true);
    await watching.confirmed;
    await peer.etcd.put(key).value('');
    await watching.changed;
  });

  test('shares one stream with all others of its client, and ends with the last', async () => {
    await using peer = await Peer.connect(endpoints);
    const streams = streamsOf(peer);
    const keys = Array.from({ length: 20 }, newName);
    const watches = keys.map((key) => watch(peer, key));
    await Promise.all(watches.map(({ confirmed }) => confirmed));
    const stream = await streams.last();
    const closed = new Promise((resolve) => stream.on('close', resolve));
    const [first, ...others] = watches;
    for (const other of others) other[Symbol.dispose]();
    await peer.etcd.put(keys[0] ?? '').value('');
    await peer.etcd.delete().key(keys[0] ?? '');
    await first?.changed;
    expect(streams.count()).toBe(1);
    first?.[Symbol.dispose]();
    first?.[Symbol.dispose]();
    await closed;
    using next = watch(peer, newName());
    await next.confirmed;
    expect(streams.count()).toBe(2);
  });

  test.each(['cut', 'refuse'] as const)(
    'that is lost when the connection is says so: %s',
    async (how) => {
      await using proxy = await startProxy(endpoint);
      await using peer = await Peer.connect([proxy.endpoint]);
      using watching = watch(peer, newName());
      await watching.confirmed;
      proxy[how]();
      await watching.changed;
      // One that cannot be opened does not leave anybody waiting either.
      using next = watch(peer, newName());
      await next.confirmed;
    },
  );

  test.each(['end', 'cancellation', 'refusal'])(
    'whose stream meets its %s by etcd says so, and the next one is on a new stream',
    async (what) => {
      await using peer = await Peer.connect(endpoints);
      const streams = streamsOf(peer);
      using watching = watch(peer, newName());
      await watching.confirmed;
      const stream = await streams.last();
      // As etcd's answers arrive: it cannot be made to send these at will.
      const answer = { watch_id: '0', created: false, canceled: true, events: [] };
      if (what === 'end') stream.emit('end');
      if (what === 'cancellation') stream.emit('data', answer);
      if (what === 'refusal') stream.emit('data', { ...answer, watch_id: '-1', created: true });
      await watching.changed;
      const key = newName();
      await peer.etcd.put(key).value('');
      using next = watch(peer, key);
      await next.confirmed;
      await peer.etcd.delete().key(key);
      await next.changed;
      expect(streams.count()).toBe(2);
    },
  );

  test('on a stream that has gone mute is given up within two questions', async () => {
    await using proxy = await startProxy(endpoint);
    await using peer = await Peer.connect([proxy.endpoint]);
    using watching = watch(peer, newName());
    await watching.confirmed;
    proxy.swallow();
    const start = performance.now();
    await watching.changed;
    expect(performance.now() - start).toBeLessThan(4500);
  });

  test('on a stream on which nothing happens stays: etcd is asked, and answers', async () => {
    await using proxy = await startProxy(endpoint);
    await using peer = await Peer.connect([proxy.endpoint]);
    const key = newName();
    await peer.etcd.put(key).value('');
    const streams = streamsOf(peer);
    using watching = watch(peer, key);
    await watching.confirmed;
    for (let answers = 0; answers < 3; answers++) {
      expect(await Promise.race([watching.changed, proxy.traffic('toClient', 20)])).toBeUndefined();
    }
    expect(await within(0, undefined, watching.changed)).toBe(OVER);
    await peer.etcd.delete().key(key);
    await watching.changed;
    expect(streams.count()).toBe(1);
  });
});
