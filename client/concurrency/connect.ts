// A connection to etcd that is known to work: the member list has been read through it, as etcd's
// contrib/lock client does, because without a reachable member everything after would wait forever.
// etcd3's own settings keep a host out for five seconds after three failures, even the only host;
// here a member that failed is left out for a second, and only while another one is left to ask.

import { circuitBreaker, handleWhen, type IBreaker, noop } from 'cockatiel';
import { Etcd3, isRecoverableError } from 'etcd3';
import { Unreachable } from './errors.js';
import { rpc } from './rpc.js';

export interface ConnectOptions {
  /** URLs of the members, `http://host:port`; the scheme may be left out. Default: {@link ENDPOINTS}. */
  endpoints?: readonly string[];
  /** Milliseconds until some member must have answered. Default 5000, as in contrib/lock. */
  timeout?: number;
  /** Ends the attempt with the signal's reason. */
  signal?: AbortSignal;
}

/** The endpoints of etcd's own three-member example cluster, contrib/lock's default. */
export const ENDPOINTS: readonly string[] = [
  'http://127.0.0.1:2379',
  'http://127.0.0.1:22379',
  'http://127.0.0.1:32379',
];

/**
 * Connects and asks a member for the member list.
 *
 * @returns a client that the caller closes with `close()`
 * @throws RangeError for an endpoint that cannot be one; {@link Unreachable} when no member
 *   answers in time
 */
export async function connect({
  endpoints = ENDPOINTS,
  timeout = 5000,
  signal,
}: ConnectOptions = {}): Promise<Etcd3> {
  const hosts = endpoints.map(checkEndpoint);
  const etcd = new Etcd3({
    hosts,
    grpcOptions: {
      // A connection that swallows everything is only left behind with a pool that is our own.
      'grpc.use_local_subchannel_pool': 1,
      // As in Go, a proxy for the web is none for etcd on this machine.
      'grpc.enable_http_proxy': 0,
    },
    faultHandling: { global: noop, host: leaveOutFailed(hosts) },
  });
  try {
    await rpc((options) => etcd.cluster.memberList({}, options), { timeout, signal });
    return etcd;
  } catch (error) {
    etcd.close();
    if (!(error instanceof Unreachable)) throw error;
    const reason = error.cause instanceof Error ? error.cause.message : error.message;
    throw new Unreachable(
      `no answer within ${timeout / 1000} s from ${endpoints.join(', ')} (${reason})`,
      { cause: error.cause },
    );
  }
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

/** A circuit breaker a host that knows of the others: the last one standing is always asked. */
function leaveOutFailed(hosts: readonly string[]) {
  const failed = new Set<IBreaker>();
  return () => {
    const breaker: IBreaker = {
      state: undefined,
      success: () => void failed.delete(breaker),
      failure: () => failed.add(breaker).size < hosts.length,
    };
    return circuitBreaker(handleWhen(isRecoverableError), { halfOpenAfter: 1000, breaker });
  };
}
