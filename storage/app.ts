/**
 * The service over HTTP: any POST, whatever its path and content type, is one request, as in etcd's
 * contrib/lock. Unlike upstream, which exits on a request it cannot read, it answers each with the
 * same three fields and a status; other methods, compressed bodies and bodies over 1 MiB are refused.
 * For people and their tools there are a page, its health and its metrics, by Express; what programs
 * ask does not pass through it, which would cost more than all the rest. It never listens.
 */
import { once } from 'node:events';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import express from 'express';
import helmet from 'helmet';
import { BODY_LIMIT, BodyReader } from './body.js';
import { createGuard, type GuardOptions } from './guard.js';
import { Metrics } from './metrics.js';
import type { Outcome } from './outcome.js';
import { createPage } from './page/page.js';
import { DecodeError, decodeRequest, encodeResponse, type Response, refused } from './protocol.js';
import { handle, type Service, UnknownOpError } from './service.js';
import { NoRoom, Unavailable } from './stores/store.js';

export type AppOptions = Service &
  GuardOptions & {
    /** Gets what became of each request that was let in and whose body arrived. */
    observe: (outcome: Outcome) => void;
    /** Aborted when the server stops: ends what would go on for ever. */
    signal: AbortSignal;
  };

export function createApp({
  host,
  token,
  observe,
  signal,
  ...service
}: AppOptions): RequestListener {
  const guard = createGuard({ host, token });
  const metrics = new Metrics(service.rule.name);
  const page = createPage({ ...service, signal });
  const deny = (res: ServerResponse, status: number, reason: string) => {
    metrics.deny(status);
    send(res, status, refused(reason));
  };
  const observeAll = (outcome: Outcome) => {
    metrics.observe(outcome);
    page.observe(outcome);
    observe(outcome);
  };
  const protocol = createProtocol(service, observeAll, deny);
  const health = createHealth(service);
  const app = express();
  app.disable('x-powered-by').disable('etag');
  app.use(helmet(HEADERS));
  app.get('/healthz', async (req, res) => {
    const error = await health();
    // What is wrong is nobody's business who may not come in.
    const reason = guard(req) ? 'unavailable' : error?.message;
    res
      .status(error ? 503 : 200)
      .set('Cache-Control', 'no-store')
      .type('text');
    res.send(error ? `${reason}\n` : 'ok\n');
  });
  app.get('/metrics', async (_req, res) => {
    res.set('Content-Type', metrics.contentType).send(await metrics.text());
  });
  app.use(page.router);
  app.use((req, res) => {
    res.setHeader('Allow', 'POST');
    deny(res, 405, `expected a POST with one JSON request as its body, got ${req.method}`);
  });
  return (req, res) => {
    // What nobody foresaw costs a connection, and not the process.
    const fail = (error: unknown) => {
      console.error(error);
      req.socket.destroy();
    };
    try {
      const denial = guard(req);
      // Whoever keeps this process alive has no token.
      if (denial && !(denial.status === 401 && isHealth(req))) {
        if (denial.status === 401) res.setHeader('WWW-Authenticate', 'Basic realm="storage"');
        deny(res, denial.status, denial.reason);
      } else if (req.method === 'POST') {
        protocol(req, res).catch(fail);
      } else {
        app(req, res);
      }
    } catch (error) {
      fail(error);
    }
  };
}

const HEADERS = {
  contentSecurityPolicy: {
    useDefaults: false,
    directives: {
      'default-src': ["'none'"],
      'script-src': ["'self'"],
      'style-src': ["'self'"],
      'connect-src': ["'self'"],
      'img-src': ["'self'"],
      'base-uri': ["'none'"],
      'form-action': ["'none'"],
      'frame-ancestors': ["'none'"],
    },
  },
  // The host may serve other things without TLS.
  strictTransportSecurity: false,
};

function isHealth({ method, url }: IncomingMessage): boolean {
  return method === 'GET' && url === '/healthz';
}

/** Whether storage has what it needs to decide; one question at a time, however many ask. */
function createHealth({ store, lock }: Service): () => Promise<Error | undefined> {
  let asking: Promise<Error | undefined> | undefined;
  const ask = () =>
    Promise.all([store.check(), lock?.holder()]).then(
      () => undefined,
      (error: Error) => error,
    );
  return () => {
    asking ??= ask().finally(() => {
      asking = undefined;
    });
    return asking;
  };
}

function createProtocol(
  service: Service,
  observe: (outcome: Outcome) => void,
  deny: (res: ServerResponse, status: number, reason: string) => void,
) {
  const bodies = new BodyReader();
  return async (req: IncomingMessage, res: ServerResponse) => {
    // Of requests that were pipelined, only the one whose turn it is to be answered goes on:
    // otherwise one packet full of small reads would hold as many big answers in memory.
    if (res.socket === null) await once(res, 'socket');
    const encoding = req.headers['content-encoding'] ?? 'identity';
    if (encoding.toLowerCase() !== 'identity') {
      return deny(res, 415, `expected the body not to be encoded, got ${encoding}`);
    }
    const body = await bodies.read(req, res);
    if (body === 'aborted') return;
    if (body === 'too large') {
      return deny(res, 413, `expected the body to be at most ${BODY_LIMIT} bytes`);
    }
    if (body === 'busy') return deny(res, 503, 'too many large requests at once; try again');
    const [status, response, outcome] = await answer(body, service);
    send(res, status, response);
    observe(outcome);
  };
}

async function answer(
  body: Buffer,
  service: Service,
): Promise<[status: number, response: Response, outcome: Outcome]> {
  const start = performance.now();
  let [op, key, val, version]: [Outcome['op'], string, string, bigint] = ['', '', '', 0n];
  const outcome = (result: Outcome['result'], fenced: boolean, reason: string): Outcome => {
    const seconds = (performance.now() - start) / 1000;
    return { at: Date.now(), op, key, val, token: version, fenced, result, reason, seconds };
  };
  try {
    const request = decodeRequest(body);
    ({ key, val, version } = request);
    if (request.op === 'read' || request.op === 'write') op = request.op;
    const { result, fenced, response } = await handle(request, service);
    return [200, response, outcome(result, fenced, result === 'refused' ? response.err : '')];
  } catch (error) {
    const [status, reason] = explain(error);
    return [status, refused(reason), outcome(status === 400 ? 'invalid' : 'failed', false, reason)];
  }
}

function send(res: ServerResponse, status: number, response: Response): void {
  const body = encodeResponse(response);
  // All at once, the length too: headers one by one take node a seventh of the time of a request.
  res.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
  });
  res.end(body);
}

function explain(error: unknown): [status: number, reason: string] {
  if (error instanceof DecodeError) return [400, `failed to unmarshal json: ${error.message}`];
  if (error instanceof UnknownOpError) return [400, error.message];
  if (error instanceof NoRoom) return [507, error.message];
  if (error instanceof Unavailable) return [503, error.message];
  return [500, `failed to handle the request: ${error}`];
}
