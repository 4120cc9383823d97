// What a benchmark is: a case measures, and gives rows for the table, each as soon as it is known.
// Times mean little on a machine that others share, so a row compares wherever it can.

export type Case = {
  /** One line for the list. */
  readonly about: string;
  readonly run: (bench: Bench) => AsyncIterable<Row>;
};

export type Bench = {
  /** How much to measure: 1 is enough for figures that come again, less is a look. */
  readonly scale: number;
  /** Ends all waiting with its reason. */
  readonly signal: AbortSignal;
};

export type Row = {
  /** What was measured: `lock + unlock, uncontended`. */
  readonly what: string;
  readonly value: number;
  readonly unit: 'ms' | '/s' | 'MiB' | 'KiB' | '';
  /** What it is compared with, measured in the same run, in turn with it. */
  readonly against?: {
    readonly what: string;
    readonly value: number;
    /**
     * Of ours to that one. Where `value` is a median of rounds, the median of the ratios of each round;
     * otherwise (a p99, the slowest, the size of a heap) of the two values.
     */
    readonly ratio: number;
    /** What the ratio should come to, if there is an aim. */
    readonly aim?: { readonly atMost: number } | { readonly atLeast: number };
  };
};
