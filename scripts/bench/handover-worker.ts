// A contender as a process of its own: says `ready`, contends from the first line on its standard input
// until that ends, and tells each of its turns on standard output, a line of JSON.

import { once } from 'node:events';
import { Mutex } from '../../client/concurrency/index.js';
import { Peer } from '../lib/peer.js';
import { contend } from './contender.js';
import { RawLock } from './raw-lock.js';

const [endpoint = '', kind, name = '', puts, warmUp] = process.argv.slice(2);
await using peer = await Peer.connect([endpoint]);
const session = await peer.session();
const stop = new AbortController();
process.stdin.on('end', () => stop.abort());
console.log('ready');
await once(process.stdin, 'data', { signal: stop.signal });
const lock = new (kind === 'raw' ? RawLock : Mutex)(session, name);
const options = { puts: Number(puts), warmUp: Number(warmUp), signal: stop.signal };
await contend(session, lock, options, (turn) => {
  console.log(JSON.stringify({ ...turn, token: String(turn.token) }));
});
