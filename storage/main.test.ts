import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Program, startStorage } from '../scripts/lib/program.js';
import { decodeRequest, decodeResponse } from './protocol.js';

const MAIN = fileURLToPath(new URL('../dist/storage/main.js', import.meta.url));
const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));

const LOOPBACKS = ['127.0.0.1', '::1'].filter((address) =>
  Object.values(networkInterfaces()).some((all) => all?.some((one) => one.address === address)),
);

async function start(listen = 'localhost:0') {
  const program = await startStorage(['--listen', listen]);
  onTestFinished(() => program[Symbol.asyncDispose]());
  return program;
}

/** Runs storage with arguments that let it end by itself. */
async function run(...args: string[]) {
  const program = Program.start(process.execPath, [MAIN, ...args]);
  onTestFinished(() => program[Symbol.asyncDispose]());
  const { code } = await program.exited;
  return { code, stdout: program.stdout, stderr: program.stderr };
}

async function ask(url: string, body: string | Buffer): Promise<[number, string]> {
  const response = await fetch(url, { method: 'POST', body });
  return [response.status, await response.text()];
}

async function dial(url: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1').on('error', () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/** A request that has arrived but for its last bytes, and a connection that is idle. */
async function halfway(url: string) {
  const [socket, idle] = [await dial(url), await dial(url)];
  const body = '{"op":"write","key":"key0","val":"v","version":1}';
  // The interim answer tells that the server has read the head.
  socket.write(
    `POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, -5)}`,
  );
  await once(socket, 'readable');
  return { socket, rest: body.slice(-5), idleClosed: once(idle.resume(), 'close') };
}

describe('storage', () => {
  it('says on one line where it listens, and answers there', async () => {
    const program = await start();
    expect(program.stdout).toBe(
      `storage listening on ${program.url} (${LOOPBACKS.join(' and ')})\n`,
    );
    const { port } = new URL(program.url);
    for (const host of LOOPBACKS) {
      const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}/`;
      expect(await ask(url, '{"op":"write","key":"key0","val":"v","version":1}')).toEqual([
        200,
        '{"val":"v","version":1,"err":""}',
      ]);
    }
    expect(program.stderr).toBe('');
  });

  it.each([
    ['127.0.0.1:0', /^storage listening on http:\/\/127\.0\.0\.1:\d+ \(127\.0\.0\.1\)\n$/],
    [':0', /^storage listening on http:\/\/localhost:\d+ \(every interface\)\n$/],
  ])('listens where it is told: %s', async (listen, line) => {
    const program = await start(listen);
    expect(program.stdout).toMatch(line);
  });

  it('prints its version and its help', async () => {
    expect(await run('--version')).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
    const { code, stdout } = await run('--help');
    expect(code).toBe(0);
    expect(stdout).toContain('--listen <[host]:port>');
    expect(stdout).toContain('(default: localhost:8080)');
  });

  it.each([
    [['--listen', '8080'], /'8080' is invalid\. expected \[host\]:port /],
    [['--listen', ':65536'], /':65536' is invalid\. expected \[host\]:port /],
    [['--listen'], /argument missing/],
    [['--port', '1'], /unknown option '--port'/],
    [['8080'], /too many arguments/],
  ])('refuses %j in one line and exits 1', async (args, message) => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^error: .*\n$/);
  });

  it.each(LOOPBACKS)('exits 1 with one line when its port is in use on %s', async (host) => {
    const other = createServer().listen(0, host);
    onTestFinished(() => void other.close());
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    expect(await run('--listen', `localhost:${port}`)).toEqual({
      code: 1,
      stdout: '',
      stderr: `storage: cannot listen on ${host === '::1' ? '[::1]' : host}:${port}: the port is in use; stop the program that has it or choose another with --listen\n`,
    });
  });

  it.each(['SIGTERM', 'SIGINT'] as const)(
    'finishes the request in flight on %s and exits 0',
    async (signal) => {
      const program = await start();
      const { socket, rest, idleClosed } = await halfway(program.url);
      program.signal(signal);
      await idleClosed;
      await expect(ask(program.url, '{}')).rejects.toThrow();
      socket.write(rest);
      expect(await text(socket)).toMatch(/200 OK.*{"val":"v","version":1,"err":""}$/s);
      expect(await program.exited).toEqual({ code: 0, signal: null });
      expect(program.stderr).toBe('');
    },
  );

  it('takes a signal that npm passes on right after the terminal’s for the same one', async () => {
    const program = await start();
    const { socket, rest, idleClosed } = await halfway(program.url);
    program.signal('SIGINT');
    await idleClosed;
    program.signal('SIGINT');
    socket.write(rest);
    expect(await text(socket)).toMatch(/200 OK.*{"val":"v","version":1,"err":""}$/s);
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });

  it('exits at once on a second signal that comes later', async () => {
    const program = await start();
    const { idleClosed } = await halfway(program.url);
    program.signal('SIGINT');
    await idleClosed;
    const again = setInterval(() => program.signal('SIGTERM'), 100);
    onTestFinished(() => clearInterval(again));
    expect(await program.exited).toEqual({ code: null, signal: 'SIGTERM' });
  });

  it('does not wait for ever for a request that does not end', async () => {
    const program = await start();
    await halfway(program.url);
    program.signal('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });

  it('logs what it did not understand with control characters escaped', async () => {
    const program = await start();
    await ask(program.url, '{"op":"\\u001b]0;pwned\\u0007\\nstorage listening on"}');
    await program.line('unknown op: \\u{1b}]0;pwned\\u{7}\\u{a}storage listening on');
    await ask(program.url, 'no json');
    await program.line('failed to unmarshal json: expected a JSON object, got "n" at offset 0');
  });

  it('goes on when nobody reads its log any more', async () => {
    // The reader of the log passes its first line on and leaves.
    const pipe = `"$0" "$1" --listen localhost:0 | { read -r line; echo "$line"; }`;
    const program = Program.start('bash', ['-c', pipe, process.execPath, MAIN]);
    onTestFinished(() => program[Symbol.asyncDispose]());
    const url = /http:\S+/.exec(await program.line('listening'))?.[0] ?? '';
    for (let i = 0; i < 10; i++) {
      expect(await ask(url, '{"op":"x"}')).toEqual([
        400,
        '{"val":"","version":-1,"err":"unknown op: x"}',
      ]);
    }
  });

  it('survives thousands of random bodies, and so does its data', async () => {
    const seed = Number(process.env.SEED ?? Date.now() % 2 ** 32);
    const random = generator(seed);
    const program = await start();
    /** What the accepted writes left behind, by key, as the text of an answer. */
    const expected = new Map<string, string>();
    const counts: Record<number, number> = {};
    for (let i = 0; i < 3000; i++) {
      const body = randomBody(random);
      const hint = `seed ${seed}, body ${i}: ${JSON.stringify(body.toString())}`;
      const [status, answer] = await ask(program.url, body).catch((error: unknown) => {
        throw new Error(`no answer, ${hint}`, { cause: error });
      });
      counts[status] = (counts[status] ?? 0) + 1;
      expect([200, 400], hint).toContain(status);
      expect(answer, hint).toMatch(/^{"val":".*","version":-?\d+,"err":".*"}$/);
      const { err, version } = decodeResponse(answer);
      if (status === 400) expect([err === '', version], hint).toEqual([false, -1n]);
      else if (err === '') {
        const { op, key } = decodeRequest(body);
        if (op === 'write') expected.set(key, answer);
        else expect(answer, hint).toBe(expected.get(key));
      }
    }
    expect(counts[200], `seed ${seed}`).toBeGreaterThan(500);
    expect(counts[400], `seed ${seed}`).toBeGreaterThan(500);
    for (const [key, answer] of expected) {
      const body = JSON.stringify({ op: 'read', key });
      expect(await ask(program.url, body), `seed ${seed}`).toEqual([200, answer]);
    }
    expect(program.stderr, `seed ${seed}`).toBe('');
    program.signal('SIGTERM');
    expect(await program.exited, `seed ${seed}`).toEqual({ code: 0, signal: null });
  }, 120_000);
});

type Random = (below: number) => number;

/** The generator mulberry32: integers from 0 to `below` - 1. */
function generator(seed: number): Random {
  let state = seed | 0;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}

/** Half well-formed requests on few keys and versions, half damaged ones and pure noise. */
function randomBody(random: Random): Buffer {
  const pick = (choices: readonly string[]) => choices[random(choices.length)] ?? '';
  const field = (): string => {
    const name = pick(['op', 'key', 'val', 'version', 'OP', 'other', '__proto__']);
    const value = pick([
      '"write"',
      '0',
      '-1',
      '1.5',
      'null',
      '[{}]',
      '"\\ud800"',
      '{"a":1}',
      '1e9',
    ]);
    return `"${name}":${value}`;
  };
  const version = pick(['1', '2', '4703569812595502721', '4703569812595502727', '-1']);
  const fields = [
    `"op":"${pick(['read', 'write', 'write'])}"`,
    `"key":"${pick(['a', 'b', '__proto__', 'constructor', '', '\u{1f600}'])}"`,
    `"val":"${pick(['x', '\\u0000', '\\n', '4703569812595502721', 'é'])}${random(1000)}"`,
    `"version":${version}`,
  ];
  const kind = random(10);
  if (kind === 0) return Buffer.from(Array.from({ length: random(200) }, () => random(256)));
  if (kind < 3) fields.splice(random(fields.length), random(2), field());
  const body = Buffer.from(`{${fields.join(',')}}`);
  if (kind < 5) {
    for (let i = random(4); i >= 0; i--) body[random(body.length)] = random(256);
    return body.subarray(0, body.length - random(2) * random(body.length));
  }
  return body;
}
