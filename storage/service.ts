/**
 * What storage does with a request, without HTTP: the handler of etcd's contrib/lock storage. Unlike
 * upstream, which answers an operation it does not know with nothing at all, this one says so.
 */
import type { Rule } from './fence.js';
import { type Request, type Response, refused } from './protocol.js';
import type { Store } from './stores/store.js';

/** The request's `op` is neither `read` nor `write`. */
export class UnknownOpError extends Error {
  override readonly name = 'UnknownOpError';
  readonly code = 'UNKNOWN_OP';
}

/** Resolves to the answer, also of a refusal. Rejects with {@link UnknownOpError}. */
export async function handle(request: Request, store: Store, rule: Rule): Promise<Response> {
  switch (request.op) {
    case 'read':
      return read(request, store);
    case 'write':
      return write(request, store, rule);
    default:
      throw new UnknownOpError(`unknown op: ${request.op}`);
  }
}

async function read({ key }: Request, store: Store): Promise<Response> {
  const entry = await store.read(key);
  return entry ? { ...entry, err: '' } : refused('key not found');
}

async function write({ key, val, version }: Request, store: Store, rule: Rule): Promise<Response> {
  const decision = await store.update(key, (current) => {
    const refusal = rule(version, current?.version);
    return refusal === undefined ? { entry: { val, version } } : { refusal };
  });
  return 'refusal' in decision ? refused(decision.refusal) : { ...decision.entry, err: '' };
}
