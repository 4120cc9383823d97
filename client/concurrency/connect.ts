// A connection to etcd that is known to work: the member list has been read through it, as etcd's
// contrib/lock client does, because without a reachable member everything after would wait forever.
// etcd3's own settings keep a host out for five seconds after three failures, even the only host;
// here a member that failed is left out for three, and only while another one is left to ask.

import { readFile } from 'node:fs/promises';
import { rootCertificates } from 'node:tls';
import {
  BrokenCircuitError,
  handleWhen,
  type IDefaultPolicyContext,
  NoopPolicy,
  retry,
} from 'cockatiel';
import { Etcd3, type IOptions, isRecoverableError } from 'etcd3';
import { ENDPOINTS } from './endpoints.js';
import { Unreachable } from './errors.js';
import { type CallOptions, neverSent, rpc } from './rpc.js';

export interface ConnectOptions {
  /** URLs of the members, `http://host:port`, or without the scheme. Default: {@link ENDPOINTS}. */
  endpoints?: readonly string[];
  /** File with the certificates to trust, PEM. Default: those that Node trusts. */
  cacert?: string;
  /** File with the client's certificate chain, PEM. Goes with `key`. Default: none. */
  cert?: string;
  /** File with the client's private key, PEM. Goes with `cert`. Default: none. */
  key?: string;
  /** `name:password`, when etcd's authentication is on. Default: none. */
  user?: string;
  /** Milliseconds until some member must have answered. Default 5000, as in contrib/lock. */
  timeout?: number;
  /** Ends the attempt with the signal's reason. */
  signal?: AbortSignal;
}

/**
 * Connects and asks a member for the member list.
 *
 * @returns a client that the caller closes with `close()`. Its calls have a deadline of 5 s unless
 *   they are given another; a call that found no connection is made at the other members too.
 * @throws RangeError for options that cannot go together or endpoints that cannot be; the error of
 *   a file that cannot be read; PermissionDenied; Unreachable when no member answers in time
 */
export async function connect(options: ConnectOptions = {}): Promise<Etcd3> {
  const { endpoints = ENDPOINTS, timeout = 5000, signal } = options;
  const hosts = checkEndpoints(endpoints);
  const members = new Set<MemberPolicy>();
  const etcd = new Etcd3({
    hosts,
    ...(await credentials(options, hosts)),
    ...authentication(options),
    defaultCallOptions: ({ isStream }) => (isStream ? {} : endsIn(CALL_LIMIT)),
    grpcOptions: {
      // A connection that swallows everything is only left behind with a pool that is our own.
      'grpc.use_local_subchannel_pool': 1,
      // gRPC would take a proxy for the web even to this machine.
      'grpc.enable_http_proxy': 0,
    },
    faultHandling: {
      global: retry(handleWhen(neverSent), { maxAttempts: hosts.length }),
      host: () => new MemberPolicy(members),
    },
  });
  try {
    await rpc((call) => etcd.cluster.memberList({}, call), { timeout, signal });
    return etcd;
  } catch (error) {
    etcd.close();
    if (/authentication is not enabled/.test(String(error)) && options.user !== undefined) {
      // As in Go: then there is nobody to ask who we are.
      const { user, ...anonymous } = options;
      return await connect(anonymous);
    }
    if (!(error instanceof Unreachable)) throw error;
    throw new Unreachable(
      `no answer within ${timeout / 1000} s from ${endpoints.join(', ')} (${reason(error)}); is etcd running there?`,
      { cause: error.cause },
    );
  }
}

/** What the last attempt met, without what gRPC says around it. */
function reason({ cause, message }: Unreachable): string {
  const text = cause instanceof Error ? cause.message : message;
  return /Last error: (?:Error: )?(.+?)\. Resolution note/.exec(text)?.[1] ?? text;
}

/** Milliseconds for a call that sets no deadline of its own. */
const CALL_LIMIT = 5000;
/** Milliseconds for one member to check a password. etcd3 asks them in order, and all calls wait. */
const PASSWORD_LIMIT = 1500;

/** Call options; `deadline` is wall-clock milliseconds, used up at once by gRPC. */
function endsIn(ms: number): CallOptions {
  return { deadline: Date.now() + ms };
}

async function credentials(
  { cacert, cert, key }: ConnectOptions,
  hosts: readonly string[],
): Promise<Pick<IOptions, 'credentials'>> {
  if ((cert === undefined) !== (key === undefined)) {
    throw new RangeError(`expected cert and key together, got only ${cert ? 'cert' : 'key'}`);
  }
  if (cacert === undefined && cert === undefined) return {};
  const plain = hosts.find((host) => !host.startsWith('https:'));
  if (plain) throw new RangeError(`expected https endpoints with certificates, got ${plain}`);
  return {
    credentials: {
      rootCertificate: cacert ? await readFile(cacert) : Buffer.from(rootCertificates.join('\n')),
      ...(cert && key && { certChain: await readFile(cert), privateKey: await readFile(key) }),
    },
  };
}

function authentication({ user }: ConnectOptions): Pick<IOptions, 'auth'> {
  if (user === undefined) return {};
  const colon = user.indexOf(':');
  if (colon < 1) throw new RangeError('expected user to be name:password, got no password');
  const [username, password] = [user.slice(0, colon), user.slice(colon + 1)];
  return { auth: { username, password, callOptions: () => endsIn(PASSWORD_LIMIT) } };
}

function checkEndpoints(endpoints: readonly string[]): string[] {
  if (!Array.isArray(endpoints)) {
    throw new RangeError(`expected endpoints to be a list of URLs, got ${String(endpoints)}`);
  }
  const hosts = endpoints.map(checkEndpoint);
  const secure = hosts.filter((host) => host.startsWith('https:')).length;
  if (hosts.length === 0) throw new RangeError('expected at least one endpoint, got none');
  if (secure !== 0 && secure !== hosts.length) {
    throw new RangeError(
      `expected all endpoints to be http or all https, got ${endpoints.join(', ')}`,
    );
  }
  return hosts;
}

function checkEndpoint(endpoint: string): string {
  const text = /^[a-z]+:\/\//i.test(endpoint) ? endpoint : `http://${endpoint}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || !url.hostname || url.pathname !== '/') {
    throw new RangeError(`expected an endpoint to be [http[s]://]host:port, got ${endpoint}`);
  }
  // URL drops the scheme's default port; gRPC would then dial another one.
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return `${url.protocol}//${url.hostname}:${port}`;
}

/**
 * Milliseconds that a member is left out. More than it takes to find out that two of three are mute
 * (1 s for the first, twice that for the second), so that the third attempt goes to the third.
 */
const LEFT_OUT = 3000;

/**
 * The policy for calls to one member. No circuit breaker: that lets one call find out whether the
 * member is back and all others wait for it, renewals too, for as long as a mute member takes.
 */
class MemberPolicy extends NoopPolicy {
  readonly #all: Set<MemberPolicy>;
  #failedAt = Number.NEGATIVE_INFINITY;

  constructor(all: Set<MemberPolicy>) {
    super();
    this.#all = all.add(this);
  }

  override async execute<T>(
    call: (context: IDefaultPolicyContext) => PromiseLike<T> | T,
    signal?: AbortSignal,
  ): Promise<T> {
    // What is thrown here sends etcd3 on to the next member.
    if (this.#isLeftOut()) throw new BrokenCircuitError();
    try {
      return await super.execute(call, signal);
    } catch (error) {
      // A success says nothing: a stream opens well on a mute member.
      if (error instanceof Error && isRecoverableError(error)) this.#failedAt = performance.now();
      throw error;
    }
  }

  /** The one whose failure is the longest ago is always asked. */
  #isLeftOut(): boolean {
    if (performance.now() - this.#failedAt >= LEFT_OUT) return false;
    return [...this.#all].some((other) => other.#failedAt < this.#failedAt);
  }
}
