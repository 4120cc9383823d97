// The program `client` as its users meet it: the built one as a process of its own, with a real
// etcd, the real storage and, where a terminal matters, a real pseudo-terminal.

import { once } from 'node:events';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest';
import { runEtcdctl, startEtcd } from '../scripts/lib/etcd.js';
import { Program, type ProgramOptions, startClient, startStorage } from '../scripts/lib/program.js';

const SCRIPT = fileURLToPath(new URL('../dist/client/main.js', import.meta.url));
const PRESS =
  "please manually revoke the lease using 'etcdctl lease revoke VERSION' or wait for it to expire, then start executing client 2 and hit any key...";
/** How long etcd may take to show what is waited for; a lease runs out within TTL + 2 s. */
const PATIENCE = { timeout: 30_000, interval: 100 };
/** Nothing listens here. */
const DEAD = 'http://127.0.0.1:1';

let storage: Awaited<ReturnType<typeof startStorage>>;
beforeAll(async () => {
  storage = await startStorage();
});
afterAll(() => storage[Symbol.asyncDispose]());

describe.concurrent('the walk-through', () => {
  test('a revoked client 1 is refused what client 2 has written meanwhile', async () => {
    const own = place();
    await using one = startClient(1, flags(own));
    const first = await version(one);
    await one.line('hit any key');
    expect(await ctl('lease', 'list')).toContain(`\n${padded(first)}\n`);
    expect(await ctl('lease', 'revoke', first)).toBe(`lease ${padded(first)} revoked\n`);

    await using two = startClient(2, flags(own));
    expect(await end(two, 'successfully')).toBe(0);
    const second = await version(two);
    expect(said(two)).toEqual([
      'client 2 starts',
      'created etcd client and session',
      `acquired lock, version: ${second}`,
      'this is client 2, continuing',
      `successfully write a key to storage using lease ${second}`,
    ]);

    one.write('x');
    expect(await end(one, 'expected fail')).toBe(0);
    expect(said(one)).toEqual([
      'client 1 starts',
      'created etcd client and session',
      `acquired lock, version: ${first}`,
      PRESS.replace('VERSION', first),
      'resuming client 1',
      `expected fail to write to storage with old lease version: error: given version (${first}) is different from the existing version (${second})`,
    ]);
    expect(one.stdout + two.stdout).toBe('');
    expect(await stored(own.record)).toContain('"val":"value from client 2"');
  });

  test('a second client 2 is refused, and releases the lock all the same', async () => {
    const own = place();
    await using first = startClient(2, flags(own));
    expect(await end(first, 'successfully')).toBe(0);
    await using second = startClient(2, flags({ ...own, ttl: 60 }));
    expect(await end(second, 'unexpected')).toBe(1);
    expect(said(second).at(-1)).toBe(
      `unexpected fail to write to storage: error: given version (${await version(second)}) is different from the existing version (${await version(first)})`,
    );
    expect(second.stdout).toBe('');
    await expectReleased(own.lock, await version(second));
  });

  test('client 2 waits while client 1 holds the lock', async () => {
    const own = place();
    await using one = startClient(1, flags(own));
    await one.line('hit any key');
    await using two = startClient(2, flags({ ...own, record: `${own.record}-2` }));
    await vi.waitFor(async () => expect(await queue(own.lock)).toHaveLength(2), PATIENCE);
    expect(said(two)).toEqual(['client 2 starts', 'created etcd client and session']);
    one.write('x');
    expect(await end(one, 'successfully')).toBe(0);
    expect(await end(two, 'successfully')).toBe(0);
    expect(await stored(own.record)).toContain('"val":"value from client 1"');
  });

  test('a paused client 1 loses the lock, and is refused when it goes on', async () => {
    const own = place();
    await using one = startClient(1, flags(own));
    const first = await version(one);
    await one.line('hit any key');
    one.signal('SIGSTOP');
    await vi.waitFor(() => expectReleased(own.lock, first), PATIENCE);
    await using two = startClient(2, flags(own));
    expect(await end(two, 'successfully')).toBe(0);
    one.write('x');
    one.signal('SIGCONT');
    expect(await end(one, 'expected fail')).toBe(0);
    expect(said(one).at(-1)).toContain(
      `given version (${first}) is different from the existing version (${await version(two)})`,
    );
  });

  test('a client 1 that blocks itself loses the lock, and is refused when it goes on', async () => {
    const own = place();
    await using one = startClient(1, [...flags(own), '--block', '10']);
    const first = await version(one);
    await one.line('blocking the event loop for 10 s');
    await using two = startClient(2, flags(own));
    expect(await end(two, 'successfully')).toBe(0);
    expect(said(one).at(-1)).toMatch(/^blocking/);
    expect(await end(one, 'expected fail')).toBe(0);
    expect(said(one).slice(-2)).toEqual([
      'resuming client 1',
      `expected fail to write to storage with old lease version: error: given version (${first}) is different from the existing version (${await version(two)})`,
    ]);
  });

  test('after a kill of client 1 its lock is free within TTL + 2 s', async () => {
    const own = place();
    await using one = startClient(1, flags(own));
    expect(await ctl('lease', 'timetolive', await version(one))).toContain('TTL(2s)');
    await using two = startClient(2, flags(own));
    await vi.waitFor(async () => expect(await queue(own.lock)).toHaveLength(2), PATIENCE);
    one.signal('SIGKILL');
    await two.line('acquired lock', { timeout: 4000 });
    expect((await two.exited).code).toBe(0);
  });
});

test.concurrent.each([0, 1, 2])(
  'with number %i of three endpoints alone alive client 1 keeps its lease while it waits for a key',
  async (position) => {
    const own = place();
    const endpoints = [DEAD, DEAD, DEAD].with(position, only(inject('etcd')));
    await using client = startClient(1, flags({ ...own, endpoints }));
    await client.line('client 1 starts');
    await client.line('acquired lock', { timeout: 5000 });
    const lease = await version(client);
    const ttl = /TTL\((\d+)s\), remaining/;
    const granted = Number(ttl.exec(await ctl('lease', 'timetolive', lease))?.[1]);
    const end = performance.now() + 3 * granted * 1000;
    do {
      expect(await ctl('lease', 'timetolive', lease)).toMatch(ttl);
      await sleep(200);
    } while (performance.now() < end);
    expect(await queue(own.lock)).toEqual([`${own.lock}/${lease}`]);
    client.write('x');
    expect((await client.exited).code).toBe(0);
    expect(said(client).at(-1)).toBe(`successfully write a key to storage using lease ${lease}`);
  },
);

describe.concurrent.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const)('%s ends it with %i, releasing the lock at once', (signal, code) => {
  test('while it waits for a key, and restores the terminal', async () => {
    const own = place();
    await using terminal = onTerminal(flags({ ...own, ttl: 60 }));
    const lease = await version(terminal);
    await terminal.line(/^raw/);
    process.kill(Number((await terminal.line(/^pid/)).slice(4)), signal);
    expect(await endOnTerminal(terminal)).toBe(code);
    await expectReleased(own.lock, lease);
  });

  test('while it waits for the lock', async () => {
    const { lock, record } = place();
    const holder = `${lock}/0`;
    await ctl('put', holder, '');
    await using client = startClient(2, flags({ lock, record, ttl: 60 }));
    await vi.waitFor(async () => expect(await queue(lock)).toHaveLength(2), PATIENCE);
    const [, key] = await queue(lock);
    client.signal(signal);
    expect((await client.exited).code).toBe(code);
    expect(await queue(lock)).toEqual([holder]);
    await expectGone(String(key?.slice(lock.length + 1)));
  });

  test('while storage does not answer', async () => {
    const own = place();
    await using mute = await listen(createHttpServer());
    const asked = once(mute.server, 'request');
    await using client = startClient(2, flags({ ...own, storage: mute.url, ttl: 60 }));
    await asked;
    client.signal(signal);
    expect((await client.exited).code).toBe(code);
    expect(said(client).at(-1)).toBe('this is client 2, continuing');
    await expectReleased(own.lock, await version(client));
  });
});

test.concurrent('a storage that does not answer in its time ends client 2, and the lock is released', async () => {
  const own = place();
  await using mute = await listen(createHttpServer());
  const settings = flags({ ...own, storage: mute.url, ttl: 60 });
  await using client = startClient(2, [...settings, '--storage-timeout', '1']);
  const line = 'storage did not answer within 1 s: it may have written or not';
  expect(await end(client, line)).toBe(1);
  await expectReleased(own.lock, await version(client));
});

test.concurrent('a signal sent twice, as through npm, counts once; a later one ends it at once', async () => {
  await using etcd = await startEtcd();
  const settings = { endpoints: etcd.endpoints, ttl: 60 };
  await using patient = startClient(1, flags({ ...place(), ...settings }));
  await using hasty = startClient(1, flags({ ...place(), ...settings }));
  await Promise.all([patient.line('hit any key'), hasty.line('hit any key')]);
  only(etcd.members).pause();
  patient.signal('SIGINT');
  await sleep(50);
  patient.signal('SIGINT');
  while (!(await Promise.race([hasty.exited, sleep(100)]))) hasty.signal('SIGINT');
  only(etcd.members).resume();
  for (const client of [patient, hasty]) expect((await client.exited).code).toBe(130);
  expect(await etcd.ctl('lease', 'list')).toBe(`found 1 leases\n${padded(await version(hasty))}\n`);
});

describe.concurrent('on a terminal', () => {
  test.each(['a', ' ', '\r', '\x1b[A'])('%j is any key, without Enter', async (key) => {
    const own = place();
    await using terminal = onTerminal(flags(own));
    await terminal.line(/^raw/);
    terminal.write(key);
    expect(await endOnTerminal(terminal)).toBe(0);
    expect(terminal.stdout).toMatch(/ resuming client 1\n.* successfully write a key to storage/);
  });

  test('Ctrl-C ends it and releases the lock', async () => {
    const own = place();
    await using terminal = onTerminal(flags({ ...own, ttl: 60 }));
    await terminal.line(/^raw/);
    terminal.write('\x03');
    expect(await endOnTerminal(terminal)).toBe(130);
    expect(terminal.stdout).not.toContain('resuming');
    await expectReleased(own.lock, await version(terminal));
  });

  test('Ctrl-\\ ends it', async () => {
    await using terminal = onTerminal(flags(place()));
    await terminal.line(/^raw/);
    terminal.write('\x1c');
    expect(await endOnTerminal(terminal)).toBe(131);
    expect(terminal.stdout).not.toContain('resuming');
  });

  test('Ctrl-Z stops it and fg lets it wait on', async () => {
    const command = [process.execPath, SCRIPT, '1', ...flags({ ...place(), ttl: 60 })]
      .map((word) => `'${word}'`)
      .join(' ');
    await using shell = Program.start('bash', ['--norc', '--noprofile', '--noediting', '-i'], {
      tty: true,
      env: { PS1: '', WATCH, LC_ALL: 'C' },
    });
    shell.write(`(sh -c "$WATCH" &); ${command}\n`);
    await shell.line(/^raw/);
    shell.write('\x1a');
    await shell.line(/^\[1\].* Stopped/);
    shell.write('(MARK=again sh -c "$WATCH" &); fg\n');
    await shell.line(/^raw again/);
    expect(shell.stdout).not.toContain('resuming');
    shell.write('x');
    await shell.line('successfully');
    shell.write('echo "exit code $?"\n');
    await shell.line(/^exit code 0/);
  });

  test('its end is the end of client 1, which releases the lock', async () => {
    const own = place();
    await using terminal = onTerminal(flags({ ...own, ttl: 60 }));
    const lease = await version(terminal);
    await terminal.line(/^raw/);
    // The end of the first process on a terminal hangs it up.
    terminal.signal('SIGKILL');
    await vi.waitFor(() => expectReleased(own.lock, lease), PATIENCE);
  });
});

test.concurrent.each([
  ['the end of a pipe', 'true | "$0" "$@"'],
  ['an empty input', '"$0" "$@" < /dev/null'],
  ['no input', '"$0" "$@" <&-'],
  ['the first byte of a file', '"$0" "$@" < "$1"'],
])('%s is as good as a key', async (_name, script) => {
  const command = [process.execPath, SCRIPT, '1', ...flags(place())];
  await using client = Program.start('sh', ['-c', script, ...command]);
  expect(await end(client, 'successfully')).toBe(0);
  expect(said(client).at(-2)).toBe('resuming client 1');
});

describe.concurrent('without etcd', () => {
  test('where nothing listens it ends within 5 s', async () => {
    await using client = startClient(2, flags({ ...place(), endpoints: [DEAD] }));
    await expectUnreachable(client, DEAD);
  });

  test('where nobody answers it ends within 5 s, or at once when told to', async () => {
    await using mute = await listen(createServer());
    const connected = once(mute.server, 'connection');
    await using told = startClient(1, flags({ ...place(), endpoints: [mute.url] }));
    await connected;
    told.signal('SIGINT');
    const start = performance.now();
    expect((await told.exited).code).toBe(130);
    expect(performance.now() - start).toBeLessThan(2000);
    await using client = startClient(2, flags({ ...place(), endpoints: [mute.url] }));
    await expectUnreachable(client, mute.url);
  });

  test('where etcd was stopped it ends within 5 s', async () => {
    await using etcd = await startEtcd();
    only(etcd.members).pause();
    await using client = startClient(2, flags({ ...place(), endpoints: etcd.endpoints }));
    await expectUnreachable(client, only(etcd.endpoints));
  });

  test('client 1 whose etcd was killed goes on to its write, and ends within 4 s', async () => {
    await using etcd = await startEtcd();
    await using client = startClient(1, flags({ ...place(), endpoints: etcd.endpoints }));
    await client.line('hit any key');
    await etcd.stop();
    client.write('x');
    const start = performance.now();
    expect((await client.exited).code).toBe(0);
    expect(performance.now() - start).toBeLessThan(4000);
    expect(said(client).at(-1)).toMatch(/^successfully/);
  });

  test('client 2 whose lease is revoked while it waits for the lock ends with a line', async () => {
    const { lock, record } = place();
    await ctl('put', `${lock}/0`, '');
    await using client = startClient(2, flags({ lock, record, ttl: 60 }));
    await vi.waitFor(async () => expect(await queue(lock)).toHaveLength(2), PATIENCE);
    await ctl('lease', 'revoke', String((await queue(lock))[1]?.slice(lock.length + 1)));
    expect(await end(client, 'failed to acquire lock: mutex: session is expired')).toBe(1);
  });

  test('a session that cannot be created ends it with a line', async () => {
    await using client = startClient(2, flags({ ...place(), ttl: 9_000_000_001 }));
    expect(
      await end(
        client,
        /failed to create a session: expected ttl to be 9000000000 seconds at most/,
      ),
    ).toBe(1);
  });
});

test.concurrent.each<[string, RegExp, RequestListener?]>([
  ['is not there', /^failed to send a request to storage: connect ECONNREFUSED 127.0.0.1:1$/],
  [
    'hangs up',
    /^failed to send a request to storage: socket hang up$/,
    (request) => request.socket.destroy(),
  ],
  [
    'answers nothing',
    /^failed to unmarshal response json: expected a JSON object, got the end/,
    (_request, response) => response.end(),
  ],
  [
    'answers rubbish',
    /^failed to unmarshal response json: expected a JSON object, got "r"/,
    (_request, response) => response.end('rubbish'),
  ],
  [
    'is a web server',
    /^storage answered with status 404$/,
    (_request, response) => response.writeHead(404).end('<h1>Not Found</h1>'),
  ],
])(
  'a storage that %s ends it with a line, and with the lock released',
  async (_what, line, answer) => {
    const own = place();
    await using server = await listen(createHttpServer(answer));
    const settings = { ...own, storage: answer ? server.url : DEAD, ttl: 60 };
    await using client = startClient(2, flags(settings));
    await client.line('continuing');
    expect((await client.exited).code).toBe(1);
    expect(said(client).at(-1)).toMatch(line);
    await expectReleased(own.lock, await version(client));
  },
);

describe.concurrent('the command line', () => {
  test.each([
    ['usage: client <1 or 2>', []],
    ['usage: client <1 or 2>', ['1', '2']],
    ['mode should be 1 or 2 (given value is x)', ['x']],
    ['mode should be 1 or 2 (given value is 3)', ['3']],
    ['mode should be 1 or 2 (given value is 1.0)', ['1.0']],
    ['mode should be 1 or 2 (given value is )', ['']],
  ])('%s, for %j', async (line, args) => {
    await using client = run(args);
    expect((await client.exited).code).toBe(1);
    expect(said(client)).toEqual([line]);
    expect(client.stdout).toBe('');
  });

  test.each([
    [['--ttl', '0'], /--ttl .*'0'.* whole number of seconds above 0/],
    [['--ttl', '1.5'], /--ttl .*'1.5'.* whole number of seconds above 0/],
    [['--storage', 'localhost:8080'], /--storage .*'localhost:8080'.* http:\/\/host:port/],
    [['--storage', 'ftp://localhost'], /--storage .*'ftp:\/\/localhost'.* http:\/\/host:port/],
    [['--token', 'lock'], /--token .*'lock' is invalid.* lease, revision/],
    [['--auth-token-file', '/none'], /cannot read \/none: ENOENT: no such file/],
    [['--storage-cacert', '/none'], /ENOENT: no such file or directory, open '\/none'/],
    [['--endpoints', ''], /failed to create an etcd client: expected an endpoint to be .* got $/m],
    [['--endpoints', 'ftp://x'], /failed to create an etcd client: .* got ftp:\/\/x/],
  ])('%j is refused', async (args, line) => {
    await using client = run(['2', ...args]);
    expect((await client.exited).code).toBe(1);
    expect(client.stderr).toMatch(line);
    expect(client.stdout).toBe('');
  });

  test.each(['01', '+1'])('%s is 1, as for Go', async (mode) => {
    await using client = run([mode, '--endpoints', DEAD]);
    await client.line('client 1 starts');
  });

  test('the endpoints come from ETCDCTL_ENDPOINTS', async () => {
    const hosts = `${new URL(DEAD).host}, ${new URL(only(inject('etcd'))).host}`;
    const [, , ...others] = flags(place());
    await using client = startClient(2, others, { env: { ETCDCTL_ENDPOINTS: hosts } });
    expect((await client.exited).code).toBe(0);
  });

  test('a variable that is empty is not set, as for etcdctl', async () => {
    await using client = startClient(1, flags(place()), { env: { ETCDCTL_CERT: '' } });
    await client.line('acquired lock');
  });

  test('--endpoints goes before ETCDCTL_ENDPOINTS', async () => {
    const env = { ETCDCTL_ENDPOINTS: DEAD };
    await using client = startClient(2, flags(place()), { env });
    expect((await client.exited).code).toBe(0);
  });

  test('--lock, --record and --ttl do what they say', async () => {
    const own = place();
    await using client = startClient(1, flags({ ...own, ttl: 7 }));
    const lease = await version(client);
    expect(await queue(own.lock)).toEqual([`${own.lock}/${lease}`]);
    expect(await ctl('lease', 'timetolive', lease)).toContain('granted with TTL(7s)');
    client.write('x');
    expect((await client.exited).code).toBe(0);
    expect(await stored(own.record)).toBe(
      `{"val":"value from client 1","version":${BigInt(`0x${lease}`)},"err":""}`,
    );
  });

  test('--user and --password are those of etcdctl', async () => {
    await using etcd = await startEtcd();
    await etcd.ctl('user', 'add', 'root:secret');
    await etcd.ctl('auth', 'enable');
    const { endpoints } = etcd;
    const codes = [
      ['--user', 'root:secret'],
      ['--user', 'root', '--password', 'secret'],
      ['--user', 'root:wrong'],
    ].map(async (args) => {
      await using client = startClient(2, [...flags({ ...place(), endpoints }), ...args]);
      return (await client.exited).code;
    });
    expect(await Promise.all(codes)).toEqual([0, 0, 1]);
  });

  test('--help shows the defaults, which are those of upstream', async () => {
    await using client = run(['--help']);
    expect((await client.exited).code).toBe(0);
    for (const value of [
      'http://127.0.0.1:2379,http://127.0.0.1:22379,http://127.0.0.1:32379',
      '"http://localhost:8080"',
      '(default: 1)',
      '"/lock"',
      '"key0"',
    ]) {
      expect(client.stdout.replaceAll(/\s+/g, ' ')).toContain(value);
    }
  });

  test('--version shows that of the package', async () => {
    await using client = run(['--version']);
    expect((await client.exited).code).toBe(0);
    expect(client.stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  test('lines start with the local time, as those of Go', async () => {
    await using client = run([], { env: { TZ: 'Asia/Tokyo' } });
    await client.exited;
    const [, day, time] = /^(\S+) (\S+) /.exec(client.stderr) ?? [];
    const told = Date.parse(`${day?.replaceAll('/', '-')}T${time}+09:00`);
    expect(Math.abs(told - Date.now())).toBeLessThan(60_000);
  });
});

interface Settings {
  lock: string;
  record: string;
  endpoints?: readonly string[];
  storage?: string;
  ttl?: number;
}

function flags({ lock, record, endpoints, storage: url, ttl }: Settings): string[] {
  return Object.entries({
    '--endpoints': (endpoints ?? inject('etcd')).join(','),
    '--storage': url ?? storage.url,
    '--lock': lock,
    '--record': record,
    '--ttl': String(ttl ?? 1),
  }).flat();
}

let places = 0;

/** A lock and a record that nobody else uses. */
function place(): { lock: string; record: string } {
  places++;
  return { lock: `/main-test-${places}`, record: `main-test-${places}` };
}

function run(args: string[], options?: ProgramOptions): Program {
  return Program.start(process.execPath, [SCRIPT, ...args], options);
}

/** Shell: prints `raw` and $MARK once the terminal is in raw mode; ends with the terminal. */
const WATCH =
  'while s=$(stty -a < /dev/tty); do case $s in *-icanon*) echo raw $MARK; exit ;; esac; sleep 0.2; done';

/**
 * Client 1 on a terminal, in a shell that shows the terminal's settings before and after, and stays:
 * what is shown last on a terminal may be lost with it.
 */
function onTerminal(args: string[]): Program {
  const client = `sh -c 'echo "pid $$"; exec "$@"' sh "$@"`;
  const shell = `
    trap : INT QUIT
    ulimit -c 0
    stty -a
    (${WATCH}) &
    ${client}
    echo "exit code $?"
    stty -a
    echo end
    read -r _`;
  const command = [process.execPath, SCRIPT, '1', ...args];
  return Program.start('sh', ['-c', shell, 'sh', ...command], { tty: true });
}

/** Waits for the end of client 1 and checks the settings. Returns the exit code. */
async function endOnTerminal(terminal: Program): Promise<number> {
  await terminal.line(/^end$/);
  const shown = /^(.*\n)pid \d+\n.*exit code (\d+)\n(.*)end\n$/s.exec(terminal.stdout);
  const [, before, code, after] = shown ?? expect.unreachable(terminal.stdout);
  expect(before).toContain(' icanon');
  expect(after).toBe(before);
  return Number(code);
}

async function version(client: Program): Promise<string> {
  const line = await client.line('acquired lock, version: ');
  return line.replace(/.*: /, '');
}

/** What it has logged, without Go's prefix. */
function said(client: Program): string[] {
  const lines = client.stderr.split('\n');
  expect(lines.pop()).toBe('');
  return lines.map((line) => {
    expect(line).toMatch(/^\d{4}\/\d\d\/\d\d \d\d:\d\d:\d\d /);
    return line.slice(20);
  });
}

/** Waits for its last line and its end, which comes within a second. Returns the exit code. */
async function end(client: Program, last: string | RegExp): Promise<number | null> {
  await client.line(last);
  const start = performance.now();
  const { code } = await client.exited;
  expect(performance.now() - start).toBeLessThan(1000);
  return code;
}

async function expectUnreachable(client: Program, endpoint: string): Promise<void> {
  await client.line('client 2 starts');
  const start = performance.now();
  expect(await end(client, 'failed')).toBe(1);
  expect(performance.now() - start).toBeLessThan(7000);
  expect(said(client).at(-1)).toContain(
    `failed to reach etcd: no answer within 5 s from ${endpoint} (`,
  );
}

async function expectReleased(lock: string, lease: string): Promise<void> {
  expect(await queue(lock)).toEqual([]);
  await expectGone(lease);
}

async function expectGone(lease: string): Promise<void> {
  expect(await ctl('lease', 'timetolive', lease)).toBe(`lease ${padded(lease)} already expired\n`);
}

/** As etcdctl prints it. */
function padded(lease: string): string {
  return lease.padStart(16, '0');
}

/** The keys under a lock, the oldest first. */
async function queue(lock: string): Promise<string[]> {
  const keys = await ctl('get', '--prefix', `${lock}/`, '--keys-only', '--sort-by=CREATE');
  return keys.split('\n').filter((key) => key !== '');
}

/** etcdctl on the etcd that all tests share. */
function ctl(...args: string[]): Promise<string> {
  return runEtcdctl(['--endpoints', inject('etcd').join(','), ...args]);
}

async function stored(key: string): Promise<string> {
  const body = JSON.stringify({ op: 'read', key });
  return (await fetch(storage.url, { method: 'POST', body })).text();
}

/** A server of this test on a free port. */
async function listen<T extends Server>(server: T) {
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => sockets.add(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    server,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function only<T>(items: readonly T[]): T {
  const [item] = items;
  if (item === undefined) throw new Error('expected at least one');
  return item;
}
