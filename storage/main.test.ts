import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, test, vi } from 'vitest';
import { startEtcd } from '../scripts/lib/etcd.js';
import { Program, startClient, startStorage } from '../scripts/lib/program.js';
import { generator, type Random } from '../scripts/lib/random.js';
import { decodeRequest, decodeResponse } from './protocol.js';

const MAIN = fileURLToPath(new URL('../dist/storage/main.js', import.meta.url));
const { version } = JSON.parse(
  readFileSync(new URL('../client/concurrency/package.json', import.meta.url), 'utf8'),
);

const ETCD = ['--endpoints', inject('etcd').join(',')];

const LOOPBACKS = ['127.0.0.1', '::1'].filter((address) =>
  Object.values(networkInterfaces()).some((all) => all?.some((one) => one.address === address)),
);

type Storage = Awaited<ReturnType<typeof startStorage>>;

/** A request that has arrived but for its last bytes, and a connection that is idle. */
interface Halfway {
  socket: Socket;
  rest: string;
  idleClosed: Promise<unknown>;
}

/** What a test starts ends with it. */
const it = test.extend<{
  start: (...args: string[]) => Promise<Storage>;
  halfway: (url: string) => Promise<Halfway>;
  temporaryFolder: () => Promise<string>;
}>({
  start: ({ onTestFinished }, use) =>
    use(async (...args) => {
      const program = await startStorage(args);
      onTestFinished(() => program[Symbol.asyncDispose]());
      return program;
    }),
  halfway: ({ onTestFinished }, use) =>
    use(async (url) => {
      const [socket, idle] = [await dial(url), await dial(url)];
      onTestFinished(() => {
        for (const each of [socket, idle]) each.destroy();
      });
      const body = '{"op":"write","key":"key0","val":"v","version":1}';
      // The interim answer tells that the server has read the head.
      socket.write(
        `POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, -5)}`,
      );
      await once(socket, 'readable');
      return { socket, rest: body.slice(-5), idleClosed: once(idle.resume(), 'close') };
    }),
  temporaryFolder: ({ onTestFinished }, use) =>
    use(async () => {
      const folder = await mkdtemp(join(tmpdir(), 'storage-test-'));
      onTestFinished(() => rm(folder, { recursive: true, force: true }));
      return folder;
    }),
});

async function dial(url: string): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1').on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** Runs storage with arguments that let it end by itself. */
async function run(...args: string[]) {
  await using program = Program.start(process.execPath, [MAIN, ...args]);
  const { code } = await program.exited;
  return { code, stdout: program.stdout, stderr: program.stderr };
}

async function ask(url: string, body: string | Buffer): Promise<[number, string]> {
  const response = await fetch(url, { method: 'POST', body });
  return [response.status, await response.text()];
}

describe.concurrent('storage', () => {
  it('says on one line where it listens, and answers there', async ({ start }) => {
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

  it.for([
    ['127.0.0.1:0', /^storage listening on http:\/\/127\.0\.0\.1:\d+ \(127\.0\.0\.1\)\n$/],
    [':0', /^storage listening on http:\/\/localhost:\d+ \(every interface\)\n$/],
  ] as const)('listens where it is told: %s', async ([listen, line], { start }) => {
    const program = await start('--listen', listen);
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
    [['--colour', '1'], /unknown option '--colour'/],
    [['8080'], /too many arguments/],
    [['--fence', 'none'], /'none' is invalid\. Allowed choices are equal, monotonic, holder\./],
    [['--store', 'disk'], /'disk' is invalid\. Allowed choices are memory, lmdb, etcd\./],
    [['--log', 'xml'], /'xml' is invalid\. Allowed choices are text, json\./],
    [['reset-fence'], /missing required argument 'key'/],
  ])('refuses %j in one line and exits 1', async (args, message) => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^error: .*\n$/);
  });

  it.for(LOOPBACKS)(
    'exits 1 with one line when its port is in use on %s',
    async (host, { onTestFinished }) => {
      const other = createServer().listen(0, host);
      onTestFinished(() => void other.close());
      await once(other, 'listening');
      const { port } = other.address() as AddressInfo;
      expect(await run('--listen', `localhost:${port}`)).toEqual({
        code: 1,
        stdout: '',
        stderr: `storage: cannot listen on ${host === '::1' ? '[::1]' : host}:${port}: the port is in use; stop the program that has it or choose another with --listen\n`,
      });
    },
  );

  it.for(['SIGTERM', 'SIGINT'] as const)(
    'finishes the request in flight on %s and exits 0',
    async (signal, { start, halfway }) => {
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

  it('takes a signal that npm passes on right after the terminal’s for the same one', async ({
    start,
    halfway,
  }) => {
    const program = await start();
    const { socket, rest, idleClosed } = await halfway(program.url);
    program.signal('SIGINT');
    await idleClosed;
    program.signal('SIGINT');
    socket.write(rest);
    expect(await text(socket)).toMatch(/200 OK.*{"val":"v","version":1,"err":""}$/s);
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });

  it('exits at once on a second signal that comes later', async ({
    start,
    halfway,
    onTestFinished,
  }) => {
    const program = await start();
    const { idleClosed } = await halfway(program.url);
    program.signal('SIGINT');
    await idleClosed;
    const again = setInterval(() => program.signal('SIGTERM'), 100);
    onTestFinished(() => clearInterval(again));
    expect(await program.exited).toEqual({ code: null, signal: 'SIGTERM' });
  });

  it('does not wait for ever for a request that does not end', async ({ start, halfway }) => {
    const program = await start();
    await halfway(program.url);
    program.signal('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });

  it('logs what it did not understand with control characters escaped', async ({ start }) => {
    const program = await start();
    await ask(program.url, '{"op":"\\u001b]0;pwned\\u0007\\nstorage listening on"}');
    await program.line('unknown op: \\u{1b}]0;pwned\\u{7}\\u{a}storage listening on');
    await ask(program.url, 'no json');
    await program.line('failed to unmarshal json: expected a JSON object, got "n" at offset 0');
  });

  it('goes on when nobody reads its log any more', async ({ onTestFinished }) => {
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

  it.for([
    ['memory', 600, []],
    ['lmdb', 200, ['--store', 'lmdb', '--data']],
    ['etcd', 200, ['--store', 'etcd', '--prefix', `/${randomUUID()}/`, ...ETCD]],
  ] as const)(
    'with the %s store survives %i random bodies, and so does its data',
    { timeout: 120_000 },
    async ([store, bodies, options], { start, temporaryFolder }) => {
      const args = store === 'lmdb' ? [...options, await temporaryFolder()] : options;
      const seed = Number(process.env.SEED ?? Date.now() % 2 ** 32);
      const random = generator(seed);
      const program = await start(...args);
      /** What the accepted writes left behind, by key, as the text of an answer. */
      const expected = new Map<string, string>();
      const counts: Record<number, number> = {};
      for (let i = 0; i < bodies; i++) {
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
      for (const status of [200, 400]) {
        expect(counts[status], `seed ${seed}`).toBeGreaterThan(bodies / 6);
      }
      for (const [key, answer] of expected) {
        const body = JSON.stringify({ op: 'read', key });
        expect(await ask(program.url, body), `seed ${seed}`).toEqual([200, answer]);
      }
      expect(program.stderr, `seed ${seed}`).toBe('');
      program.signal('SIGTERM');
      expect(await program.exited, `seed ${seed}`).toEqual({ code: 0, signal: null });
    },
  );
});

describe.concurrent('the options of storage', () => {
  it.each([
    [['--store', 'lmdb'], '--store lmdb needs --data <folder>'],
    [['--tls-cert', 'cert.pem'], '--tls-cert and --tls-key go together'],
    [
      ['--tls-cert', MAIN, '--tls-key', MAIN],
      `${MAIN} and ${MAIN} are no certificate with its key: `,
    ],
    [['--auth-token-file', '/none'], 'cannot read /none: ENOENT: no such file'],
    [['--auth-token-file', '/dev/null'], 'expected /dev/null to hold one token of visible ASCII'],
    [
      ['--store', 'etcd', '--endpoints', 'ftp://x'],
      'expected an endpoint to be [http[s]://]host:port',
    ],
    [
      ['--store', 'etcd', '--prefix', '/', ...ETCD],
      'expected --prefix to be apart from the lock /lock',
    ],
    [['--store', 'etcd', '--prefix', '/lock/x', ...ETCD], 'expected --prefix to be apart'],
    [['--store', 'etcd', '--prefix', '', ...ETCD], 'expected --prefix to be apart from the lock'],
    [['--data', '/tmp'], '--data is of no use without --store lmdb'],
    [['--prefix', '/x/'], '--prefix is of no use without --store etcd'],
    [['--lock', '/x'], '--lock is of no use without --fence holder'],
    [ETCD, '--endpoints is of no use without --store etcd or --fence holder'],
    [['reset-fence', 'key0'], 'the memory store forgets when storage ends: restart it instead'],
    [['reset-fence', 'key0', '--store', 'lmdb'], '--store lmdb needs --data <folder>'],
    [['reset-fence', 'key0', '--store', 'lmdb', '--data', '/none'], 'ENOENT: no such file'],
    [['--store', 'lmdb', 'reset-fence', 'key0'], 'expected the options of reset-fence after it'],
    [['reset-fence', 'key0', ...ETCD], '--endpoints is of no use without --store etcd'],
  ])('that cannot be used are refused in one line: %j', async (args, message) => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr.startsWith(`storage: ${message}`), stderr).toBe(true);
    expect(stderr).toMatch(/^.*\n$/);
  });

  it.each(['holder', 'equal'])(
    'that need an etcd name the one that does not answer: --fence %s',
    async (fence) => {
      const store = fence === 'equal' ? ['--store', 'etcd'] : [];
      const args = ['--fence', fence, ...store, '--endpoints', 'http://127.0.0.1:1'];
      const { code, stderr } = await run(...args);
      expect(code).toBe(1);
      expect(stderr).toMatch(/^storage: no answer within 5 s from http:\/\/127\.0\.0\.1:1 .*\n$/);
    },
  );

  it('let it say in one line that everybody may write, when that is so', async ({
    start,
    temporaryFolder,
  }) => {
    const warning = 'storage: warning: whoever can reach it can write; see --auth-token-file\n';
    const open = await start('--listen', ':0');
    await open.line('warning');
    expect(open.stderr).toBe(warning);
    const file = join(await temporaryFolder(), 'token');
    await writeFile(file, 's3cret\n');
    const closed = await start('--listen', ':0', '--auth-token-file', file);
    expect((await fetch(closed.url, { method: 'POST' })).status).toBe(401);
    await closed.line('storage: warning: the token can be read on its way; see --tls-cert');
    const local = await start('--listen', '127.0.0.1:0');
    expect((await ask(local.url, '{}'))[0]).toBe(400);
    expect(local.stderr).toBe('');
  });

  it.for([
    [
      'text',
      /^\S+Z write "k" with token 5: refused: given version \(5\) is different from .*\(7\)$/,
    ],
    [
      'json',
      /^{"at":"\S+Z","op":"write","result":"refused","seconds":[\d.e-]+,"key":"k","token":"5","reason":"given .*"}$/,
    ],
  ] as const)('make it log every decision as %s', async ([format, line], { start }) => {
    const program = await start('--log', format);
    for (const version of [7, 5]) {
      await ask(program.url, `{"op":"write","key":"k","val":"v","version":${version}}`);
    }
    expect(await program.line('accepted')).toMatch(/"k"/);
    expect(await program.line('refused')).toMatch(line);
  });
});

describe.concurrent('an etcd that began anew', () => {
  it.for(['monotonic', 'holder'])(
    'is refused with both numbers and the way out, which works: --fence %s',
    async (fence, { start, temporaryFolder }) => {
      const data = ['--store', 'lmdb', '--data', await temporaryFolder()];
      const lock = `/${randomUUID()}`;
      let version = 0;
      const old = await start(...data, '--fence', 'monotonic');
      await ask(
        old.url,
        '{"op":"write","key":"key0","val":"precious","version":4703569812595502721}',
      );
      old.signal('SIGTERM');
      await old.exited;
      const asking = fence === 'holder' ? ['--lock', lock, ...ETCD] : [];
      const serve = () => start(...data, '--fence', fence, ...asking);
      const client = async (url: string) => {
        const args = ['--storage', url, '--lock', lock, '--token', 'revision', ...ETCD];
        await using two = startClient(2, args);
        await two.exited;
        version = Number(/acquired lock, token: (\d+)/.exec(two.stderr)?.[1]);
        return two.stderr;
      };
      const first = await serve();
      expect(await client(first.url)).toContain(
        `stale fencing token: given ${version} is lower than 4703569812595502721 (if etcd began anew or a lease ID was used, see storage reset-fence)`,
      );
      const inUse = await run('reset-fence', 'key0', ...data);
      expect([inUse.code, inUse.stdout]).toEqual([1, '']);
      first.signal('SIGTERM');
      await first.exited;

      const missing = await run('reset-fence', 'other', ...data);
      expect(missing).toEqual({ code: 1, stdout: '', stderr: 'storage: key not found: other\n' });
      expect(await run('reset-fence', 'key0', ...data)).toEqual({
        code: 0,
        stdout: `the fence of key0 in ${data[3]} was at 4703569812595502721; under monotonic and holder the next token sets it anew\n`,
        stderr: '',
      });
      const second = await serve();
      expect((await ask(second.url, '{"op":"read","key":"key0"}'))[1]).toContain('"precious"');
      expect(await client(second.url)).toContain('successfully write a key to storage');
    },
  );
});

describe.concurrent('the health of storage', () => {
  it('is bad while its etcd is gone, and good again when it is back', async ({ start }) => {
    await using etcd = await startEtcd();
    const [member] = etcd.members;
    const endpoints = ['--endpoints', etcd.endpoints.join(',')];
    const program = await start('--store', 'etcd', '--fence', 'holder', ...endpoints);
    const health = async () => (await fetch(new URL('/healthz', program.url))).status;
    expect(await health()).toBe(200);
    member?.pause();
    expect(await health()).toBe(503);
    const write = '{"op":"write","key":"k","val":"v","version":5}';
    const [status, answer] = await ask(program.url, write);
    expect(status).toBe(503);
    expect(answer).toMatch(/nothing was written/);
    member?.resume();
    await vi.waitFor(async () => expect(await health()).toBe(200), { timeout: 20_000 });
    expect((await ask(program.url, write))[1]).toContain('not found or expired');
  });
});

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
