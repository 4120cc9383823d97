// Hand-made histories for the tests of the pictures: short to write, and as real ones are.

import type { Event, Request, Storage, Worker } from '../history.js';

type Said<T> = T extends Worker ? Omit<T, 'who'> : never;
type Fence = 'none' | 'monotonic';

export class Script {
  readonly events: Event[] = [];
  #sent = 0;

  say(at: number, who: string, ...said: Said<Worker>[]): this {
    for (const event of said) this.events.push({ at, who, ...event } as Event);
    return this;
  }

  queue(at: number, token: bigint, key: string): this {
    this.events.push({ at, what: 'queued', key, token });
    return this;
  }

  leave(at: number, token: bigint, key: string): this {
    this.events.push({ at, what: 'left', key, token, revision: token + 2n });
    return this;
  }

  /** `took`: milliseconds to storage and back; `reason`: why it was refused. */
  send(at: number, who: string, request: Request, val = '', reason = '', took = 4): this {
    const [id, accepted] = [`${who} ${++this.#sent}`, reason === ''];
    this.say(at, who, { what: 'sends', id, request });
    const decided: Storage = { what: 'decided', request, accepted, reason };
    this.events.push({ at: at + took / 2, ...decided });
    return this.say(at + took, who, { what: 'told', id, answer: { accepted, val, reason } });
  }
}

export const read = (token: bigint): Request => ({ op: 'read', key: 'counter', val: '', token });
export const write = (val: string, token: bigint): Request => ({
  op: 'write',
  key: 'counter',
  val,
  token,
});

/** Client 1 is stopped with the lock in its hands, client 2 gets it, and then client 1 goes on. */
export function pause(fence: Fence, tokens: [bigint, bigint] = [31n, 33n]): Event[] {
  const [old, young] = tokens;
  const stale =
    fence === 'none' ? '' : `stale fencing token: given ${old} is lower than ${young} (see there)`;
  return new Script()
    .say(3, 'client 1', { what: 'asks' })
    .queue(9, old, 'lock/a1')
    .say(12, 'client 1', { what: 'holds', token: old, key: 'lock/a1' })
    .send(15, 'client 1', read(old), '5')
    .say(40, 'client 1', { what: 'fault', fault: 'paused', over: false })
    .say(210, 'client 2', { what: 'asks' })
    .queue(215, young, 'lock/b2')
    .leave(3140, old, 'lock/a1')
    .say(3146, 'client 2', { what: 'holds', token: young, key: 'lock/b2' })
    .send(3150, 'client 2', read(young), '5')
    .send(3158, 'client 2', write('6', young))
    .say(3420, 'client 1', { what: 'fault', fault: 'paused', over: true })
    .send(3424, 'client 1', write('6', old), '', stale)
    .say(3440, 'client 1', { what: 'lost', reason: 'session expired' })
    .say(3600, 'client 2', { what: 'releases' })
    .leave(3606, young, 'lock/b2').events;
}

/** SET NX PX: nothing to see of a queue, nothing to give to storage. */
export function redis(): Event[] {
  return new Script()
    .say(2, 'client 1', { what: 'asks' })
    .say(4, 'client 1', { what: 'holds' })
    .send(6, 'client 1', read(0n), '5')
    .say(20, 'client 1', { what: 'fault', fault: 'paused', over: false })
    .say(2120, 'client 2', { what: 'asks' })
    .say(2123, 'client 2', { what: 'holds' })
    .send(2125, 'client 2', read(0n), '5')
    .send(2133, 'client 2', write('6', 0n))
    .say(2500, 'client 1', { what: 'fault', fault: 'paused', over: true })
    .send(2503, 'client 1', write('6', 0n))
    .say(2520, 'client 1', { what: 'releases' })
    .say(2600, 'client 2', { what: 'releases' }).events;
}

export function three(): Event[] {
  return new Script()
    .say(1, 'client 1', { what: 'asks' })
    .say(4, 'client 2', { what: 'asks' })
    .queue(5, 7587869125123456n, 'lock/a1')
    .say(7, 'client 1', { what: 'holds', token: 7587869125123456n, key: 'lock/a1' })
    .queue(9, 7587869125123459n, 'lock/b2')
    .say(15, 'client 3', { what: 'asks' })
    .queue(19, 7587869125123461n, 'lock/c3')
    .say(100, 'client 1', { what: 'fault', fault: 'cut off from etcd', over: false })
    .send(900, 'client 1', write('1', 7587869125123456n), '', '', 3100)
    .say(1900, 'client 1', { what: 'lost', reason: 'no answer from etcd for 1.8 s' })
    .leave(2100, 7587869125123456n, 'lock/a1')
    .say(2104, 'client 2', { what: 'holds', token: 7587869125123459n, key: 'lock/b2' })
    .send(2110, 'client 2', write('2', 7587869125123459n))
    .say(2200, 'client 2', { what: 'releases' })
    .leave(2204, 7587869125123459n, 'lock/b2')
    .say(2206, 'client 3', { what: 'holds', token: 7587869125123461n, key: 'lock/c3' })
    .say(2600, 'client 1', { what: 'fault', fault: 'cut off from etcd', over: true })
    .send(2700, 'client 3', write('3', 7587869125123461n), '', '', 60)
    .say(4200, 'client 3', { what: 'releases' })
    .leave(4204, 7587869125123461n, 'lock/c3').events;
}

/** Three workers take turns; one is paused now and then. */
export function long(): Event[] {
  const script = new Script();
  let token = 100n;
  for (let turn = 0; turn < 6; turn++) {
    const [at, who, key] = [turn * 700, `worker ${(turn % 3) + 1}`, `lock/${turn}`];
    token += 2n;
    script.say(at + 1, who, { what: 'asks' });
    script.queue(at + 5, token, key);
    script.say(at + 8, who, { what: 'holds', token, key });
    script.send(at + 10, who, read(token), String(turn));
    if (turn === 3) {
      script.say(at + 20, who, { what: 'fault', fault: 'paused', over: false });
      script.leave(at + 650, token, key);
      continue;
    }
    script.send(at + 30, who, write(String(turn + 1), token));
    script.say(at + 60, who, { what: 'releases' });
    script.leave(at + 64, token, key);
    if (turn !== 5) continue;
    script.say(at + 70, 'worker 1', { what: 'fault', fault: 'paused', over: true });
    const reason = 'stale fencing token: given 108 is lower than 112';
    script.send(at + 75, 'worker 1', write('4', 108n), '', reason);
    script.say(at + 90, 'worker 1', { what: 'lost', reason: 'session expired' });
  }
  return script.events;
}
