/**
 * What storage does with a request, without HTTP: the handler of etcd's contrib/lock storage. Unlike
 * upstream, which answers an operation it does not know with nothing at all, this one says so; and
 * under a rule that fences reads, a read with a token counts as its holder's first sign of life.
 */
import type { Rule } from './fence.js';
import { type Request, type Response, refused } from './protocol.js';
import { type Decision, type Entry, type Holder, type Store, Unavailable } from './stores/store.js';

export type Service = {
  readonly store: Store;
  readonly rule: Rule;
  /** For a rule that wants to know who holds the lock. */
  readonly lock?: Lock | undefined;
};

/** A lock in etcd, seen from outside. */
export interface Lock {
  /** The refusal when nobody holds it. */
  readonly gone: string;
  /** Who holds it now. Rejects with `Unavailable` when etcd does not say, in bounded time. */
  holder(): Promise<Holder | undefined>;
}

/** `refused` is the rule's word; a key that is not there is no refusal. */
export type Result = 'accepted' | 'refused' | 'not found';

/** The request's `op` is neither `read` nor `write`. */
export class UnknownOpError extends Error {
  override readonly name = 'UnknownOpError';
  readonly code = 'UNKNOWN_OP';
}

/**
 * Resolves to the answer, also of a refusal; `fenced` says whether the rule accepted the token.
 * Rejects with {@link UnknownOpError} and the errors of `Store.update`.
 */
export async function handle(
  request: Request,
  service: Service,
): Promise<{ result: Result; fenced: boolean; response: Response }> {
  switch (request.op) {
    case 'read':
      // Awaited, as below: a promise that is returned unawaited costs each request two more turns.
      return await read(request, service);
    case 'write':
      return answer(await fence(request, service, () => request.val), true);
    default:
      throw new UnknownOpError(`unknown op: ${request.op}`);
  }
}

async function read(request: Request, service: Service) {
  if (service.rule.fencesReads && request.version > 0n) {
    return answer(await fence(request, service, (current) => current?.val), true);
  }
  const entry = await service.store.read(request.key);
  return answer(entry ? { entry } : undefined, false);
}

/** Puts `val` under the request's token, if the rule lets it through. */
async function fence(
  { key, version }: Request,
  { store, rule, lock }: Service,
  val: (current: Entry | undefined) => string | undefined,
): Promise<Decision> {
  const holder = lock && (await holderOf(lock));
  if (lock && !holder) return { refusal: lock.gone };
  const decide = (current: Entry | undefined): Decision => {
    const refusal = rule.check(version, current?.version, holder?.token);
    if (refusal !== undefined) return { refusal };
    const entry = { val: val(current), version };
    const same = current && current.val === entry.val && current.version === entry.version;
    return { entry: same ? current : entry };
  };
  return await store.update(key, decide, holder);
}

async function holderOf(lock: Lock): Promise<Holder | undefined> {
  try {
    return await lock.holder();
  } catch (error) {
    throw new Unavailable(`nothing was written: ${(error as Error).message}`, { cause: error });
  }
}

function answer(
  decision: Decision | undefined,
  fenced: boolean,
): { result: Result; fenced: boolean; response: Response } {
  if (decision && 'refusal' in decision) {
    return { result: 'refused', fenced: false, response: refused(decision.refusal) };
  }
  const { val, version } = decision?.entry ?? {};
  if (val === undefined || version === undefined) {
    return { result: 'not found', fenced, response: refused('key not found') };
  }
  return { result: 'accepted', fenced, response: { val, version, err: '' } };
}
