// A contender as a process of its own: contends as soon as it is started and until its standard input
// ends, and tells each of its turns on standard output, a line of JSON.

import { Peer } from '../lib/peer.js';
import { contend } from './contender.js';

const [endpoint = '', name = '', puts, warmUp] = process.argv.slice(2);
const stop = new AbortController();
process.stdin.on('end', () => stop.abort()).resume();
await using peer = await Peer.connect([endpoint]);
const options = { name, puts: Number(puts), warmUp: Number(warmUp), signal: stop.signal };
await contend(await peer.session(), options, (turn) => {
  console.log(JSON.stringify({ ...turn, token: String(turn.token) }));
});
