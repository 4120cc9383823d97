// What happened in a run of the lab, in the order it was told: the one thing that the checker judges
// and the pictures show. All processes of a machine share its monotonic clock, so that what happened
// in several of them can be ordered.

/** `at`: milliseconds since the run began. */
export type Event = { readonly at: number } & (Worker | Etcd | Storage);

/** What a worker did or was told; `who` is its name. */
export type Worker = { readonly who: string } & (
  | { readonly what: 'asks' }
  /** It was told that it holds the lock. `token`: none where the lock hands out none. */
  | { readonly what: 'holds'; readonly token?: bigint; readonly key?: string }
  /** It was told that it no longer does. */
  | { readonly what: 'lost'; readonly reason: string }
  /** Its wait ended without the lock. */
  | { readonly what: 'fails'; readonly reason: string }
  /** It began to release the lock. */
  | { readonly what: 'releases' }
  /** `id` is `<who> <number>`. */
  | { readonly what: 'sends'; readonly id: string; readonly request: Request }
  | { readonly what: 'told'; readonly id: string; readonly answer: Answer }
  /** Something is done to it, until it is over: `paused`, `cut off from etcd`. */
  | { readonly what: 'fault'; readonly fault: string; readonly over: boolean }
);

/** What is done to workers, by the names that a history has for it. */
export const faults = {
  paused: 'paused',
  blocked: 'its event loop blocked',
  ahead: 'its clock an hour ahead',
  behind: 'its clock an hour behind',
} as const;

/** Those that stop a worker: it learns nothing until they are over. */
export const STOPS: ReadonlySet<string> = new Set([faults.paused, faults.blocked]);

/** Those that cost nobody a lock. */
export const HARMLESS: ReadonlySet<string> = new Set([faults.ahead, faults.behind]);

/** What etcd's watch on the lock's queue showed. */
export type Etcd =
  /** A key came into the queue; its create revision is its place and its token. */
  | { readonly what: 'queued'; readonly key: string; readonly token: bigint }
  /** A key is gone since this revision: released, or with its lease. */
  | {
      readonly what: 'left';
      readonly key: string;
      readonly token: bigint;
      readonly revision: bigint;
    };

/** What storage decided, in the order of its effects. */
export type Storage = {
  readonly what: 'decided';
  readonly request: Request;
  readonly accepted: boolean;
  /** Why not; else empty. */
  readonly reason: string;
};

export type Request = {
  readonly op: 'read' | 'write';
  readonly key: string;
  /** Of a write. */
  readonly val: string;
  /** 0 where the lock hands out none. */
  readonly token: bigint;
};

export type Answer = { readonly accepted: boolean; readonly val: string; readonly reason: string };

/** Whether a grant rests on that place in the queue. A key may come again, a token does not. */
export function isOf(
  { token, key }: { readonly token?: bigint; readonly key?: string },
  place: { readonly token: bigint; readonly key: string },
): boolean {
  return token === undefined ? key === place.key : token === place.token;
}

/** One line of JSON; a bigint is a string of digits with an `n`. */
export function encodeEvent(event: Event): string {
  return JSON.stringify(event, (_key, value) => (typeof value === 'bigint' ? `${value}n` : value));
}

/** Throws a SyntaxError for what {@link encodeEvent} did not write. */
export function decodeEvent(line: string): Event {
  return JSON.parse(line, (key, value) =>
    /^(token|revision)$/.test(key) && /^-?\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
  );
}

/** Milliseconds on the clock that all processes of this machine share. */
export function now(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}
