// A child process whose lines can be awaited, on pipes or under a real pseudo-terminal, and the
// two programs of this package started that way. A child leads its own process group, so that
// ending it ends what it started; ETCD_* and ETCDCTL_* variables of the user do not reach it, and
// what Node would keep of its compiled code for the next time is not kept.

import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import * as pty from '@lydell/node-pty';
import { killAtEnd } from './last-resort.js';
import { Lookout } from './lookout.js';

export type Stream = 'stdout' | 'stderr';

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** `exit code 1` or `SIGKILL`. */
export function describeExit({ code, signal }: Exit): string {
  return signal ?? `exit code ${code}`;
}

export interface ProgramOptions {
  /** Set in addition to this process's environment; undefined takes a variable away. */
  env?: Record<string, string | undefined>;
  cwd?: string;
  /** Run under a pseudo-terminal; everything then arrives on stdout. Default: on pipes. */
  tty?: boolean;
  /** Called with every line, without its line end, as it comes. */
  onLine?: (line: string, stream: Stream) => void;
}

export class Program implements AsyncDisposable {
  /** Starts `command`; throws if it cannot be started. */
  static start(command: string, args: string[], options: ProgramOptions = {}): Program {
    return new Program(command, args, options);
  }

  /**
   * Resolves when the process has ended and its output has been read to the end; under a terminal
   * its last output may come a little later, or be lost with the terminal.
   */
  readonly exited: Promise<Exit>;
  readonly #child: Child;
  readonly #title: string;
  readonly #output = { stdout: '', stderr: '' };
  readonly #lines: string[] = [];
  readonly #lookout = new Lookout();
  #given = 0;
  #exit: Exit | undefined;

  private constructor(command: string, args: string[], options: ProgramOptions) {
    this.#title = [command, ...args].join(' ');
    const addLine = (line: string, stream: Stream): void => {
      this.#lines.push(line);
      options.onLine?.(line, stream);
      this.#lookout.notify();
    };
    const begun = { stdout: '', stderr: '' };
    const start = options.tty ? startOnTerminal : startOnPipes;
    this.#child = start(command, args, options, (chunk, stream) => {
      this.#output[stream] += chunk;
      const lines = (begun[stream] + chunk).split('\n');
      begun[stream] = lines.pop() ?? '';
      for (const line of lines) addLine(line, stream);
    });
    const forget = killAtEnd(this.pid);
    this.exited = this.#child.exited.then((exit) => {
      forget();
      for (const stream of ['stdout', 'stderr'] as const) {
        if (begun[stream] !== '') addLine(begun[stream], stream);
        begun[stream] = '';
      }
      this.#exit = exit;
      this.#lookout.notify();
      return exit;
    });
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** All of standard output so far; under a terminal standard error too, carriage returns taken out. */
  get stdout(): string {
    return this.#output.stdout;
  }

  /** All of standard error so far; under a terminal empty. */
  get stderr(): string {
    return this.#output.stderr;
  }

  /**
   * Resolves with the first line, of either stream, seen already or still to come, that contains
   * the string or matches the expression. Rejects, quoting all output, when the process ends
   * without it or after `timeout` ms (default 30000: a busy machine takes seconds to start a Node).
   */
  line(match: string | RegExp, { timeout = 30_000 }: { timeout?: number } = {}): Promise<string> {
    const wanted = typeof match === 'string' ? JSON.stringify(match) : String(match);
    let next = 0;
    return this.#until(timeout, wanted, () => {
      for (; next < this.#lines.length; next++) {
        const line = this.#lines[next] ?? '';
        if (typeof match === 'string' ? line.includes(match) : line.search(match) !== -1) {
          return line;
        }
      }
      if (this.#exit)
        throw this.#missed(wanted, `it ended (${describeExit(this.#exit)}) without it`);
      return undefined;
    });
  }

  /**
   * Resolves with the first line that no earlier call gave, of either stream, or with null when
   * the process has ended and all are given. Rejects after `timeout` ms (default 10000).
   */
  nextLine({ timeout = 10_000 }: { timeout?: number } = {}): Promise<string | null> {
    return this.#until(timeout, 'a line', () => {
      const line = this.#lines[this.#given];
      if (line !== undefined) this.#given++;
      return line ?? (this.#exit && null);
    });
  }

  /** Writes to its standard input; under a terminal these are key presses. */
  write(text: string): void {
    this.#child.write(text);
  }

  /** Ends its standard input; under a terminal by Ctrl-D. */
  end(): void {
    this.#child.end();
  }

  /** Sends a signal to the process (not to what it started); nothing if it has ended. */
  signal(name: NodeJS.Signals): void {
    this.#send(name, this.pid);
  }

  /** Kills the process with all it started, unless it has ended; waits until it is gone. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#send('SIGKILL', -this.pid);
    await this.exited;
  }

  #send(name: NodeJS.Signals, target: number): void {
    if (this.#exit) return;
    try {
      process.kill(target, name);
    } catch (error) {
      // It may be gone already, and not have been read to the end.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }

  #until<T>(timeout: number, wanted: string, look: () => T | undefined): Promise<T> {
    const late = () => this.#missed(wanted, `it did not within ${timeout} ms`);
    return this.#lookout.until(look, timeout, late);
  }

  #missed(wanted: string, why: string): Error {
    return new Error(
      `expected ${this.#title} to print ${wanted}, but ${why}; its output:\n${this.stdout}${this.stderr}`,
    );
  }
}

/**
 * Starts the built storage program, on a free port unless `--listen` is among `args`, and waits
 * until it listens. `url` is `http://localhost:PORT`, or `https:` with a certificate.
 */
export async function startStorage(
  args: string[] = [],
  options: ProgramOptions = {},
): Promise<Program & { url: string }> {
  const listen = args.includes('--listen') ? [] : ['--listen', 'localhost:0'];
  const program = startNode('dist/storage/main.js', [...listen, ...args], options);
  try {
    const line = await program.line(/listening on \S+:\d+/);
    const [, scheme, port] = / on (https?):\S+:(\d+)/.exec(line) ?? [];
    return Object.assign(program, { url: `${scheme}://localhost:${port}` });
  } catch (error) {
    await program[Symbol.asyncDispose]();
    throw error;
  }
}

/** Starts the built client program. */
export function startClient(
  mode: 1 | 2,
  args: string[] = [],
  options: ProgramOptions = {},
): Program {
  return startNode('dist/client/main.js', [String(mode), ...args], options);
}

interface Child {
  readonly pid: number;
  readonly exited: Promise<Exit>;
  write(text: string): void;
  end(): void;
}

type Start = (
  command: string,
  args: string[],
  options: ProgramOptions,
  receive: (chunk: string, stream: Stream) => void,
) => Child;

const startOnPipes: Start = (command, args, options, receive) => {
  const child = spawn(command, args, {
    cwd: options.cwd,
    env: environment(options.env),
    detached: true,
    stdio: 'pipe',
  });
  if (child.pid === undefined) {
    child.on('error', () => {});
    throw new Error(`cannot start ${command}: not found, or not executable`);
  }
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (chunk: string) => receive(chunk, stream));
  }
  child.stdin.on('error', () => {}); // it may end before it has read everything
  return {
    pid: child.pid,
    exited: new Promise((resolve) => {
      child.on('close', (code, signal) => resolve({ code, signal }));
    }),
    write: (text) => child.stdin.write(text),
    end: () => child.stdin.end(),
  };
};

const startOnTerminal: Start = (command, args, options, receive) => {
  const terminal = pty.spawn(command, args, {
    cwd: options.cwd ?? process.cwd(),
    env: environment(options.env),
    name: 'xterm-256color',
    cols: 120,
    rows: 30,
  });
  terminal.onData((chunk) => receive(chunk.replaceAll('\r', ''), 'stdout'));
  return {
    pid: terminal.pid,
    exited: new Promise((resolve) => {
      terminal.onExit(({ exitCode: code, signal }) =>
        resolve(signal ? { code: null, signal: signalName(signal) } : { code, signal: null }),
      );
    }),
    write: (text) => terminal.write(text),
    end: () => terminal.write('\x04'),
  };
};

function startNode(script: string, args: string[], options: ProgramOptions): Program {
  const path = fileURLToPath(new URL(`../../${script}`, import.meta.url));
  return Program.start(process.execPath, [path, ...args], options);
}

function environment(extra: ProgramOptions['env']): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !/^ETCD(CTL)?_/.test(name));
  const own = { NODE_DISABLE_COMPILE_CACHE: '1', ...extra };
  const all = Object.entries({ ...Object.fromEntries(inherited), ...own });
  return Object.fromEntries(all.filter(([, value]) => value !== undefined));
}

function signalName(number: number): NodeJS.Signals | null {
  const names = Object.entries(constants.signals) as [NodeJS.Signals, number][];
  return names.find(([, value]) => value === number)?.[0] ?? null;
}
