// Measures things against each other: in turn, A B B A, so that whatever slows the machine down for a
// while slows all of them down and each comes after the other as often, and by the ratio of each round,
// of which the median is taken.

/** What is measured: resolves to its own figure, or to anything else, and then its time in ms is taken. */
export type Contestant = () => Promise<unknown>;

/** The figures of the rounds, in their order. The first `warmUp` rounds are thrown away. */
export async function inTurn<Name extends string>(
  contestants: Readonly<Record<Name, Contestant>>,
  { rounds, warmUp, signal }: { rounds: number; warmUp: number; signal: AbortSignal },
): Promise<Record<Name, number[]>> {
  const names = Object.keys(contestants) as Name[];
  const figures = Object.fromEntries(names.map((name) => [name, [] as number[]]));
  for (let round = -warmUp; round < rounds; round++) {
    for (const name of names) {
      signal.throwIfAborted();
      const start = performance.now();
      const own = await contestants[name]();
      const figure = typeof own === 'number' ? own : performance.now() - start;
      if (round >= 0) figures[name]?.push(figure);
    }
    names.reverse();
  }
  return figures as Record<Name, number[]>;
}

/** The median of the ratios of each round. */
export function ratio(ours: readonly number[], theirs: readonly number[]): number {
  return median(ours.map((figure, round) => figure / (theirs[round] ?? Number.NaN)));
}

export function median(figures: readonly number[]): number {
  return quantile(figures, 0.5);
}

/** The smallest figure that so large a part of all is not above. */
export function quantile(figures: readonly number[], part: number): number {
  const sorted = figures.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] ?? Number.NaN;
}
