// Waiting for what comes about bit by bit: everybody looks again whenever there is something new.

export class Lookout {
  readonly #looks = new Set<() => void>();

  /** There is something new. */
  notify(): void {
    for (const look of [...this.#looks]) look();
  }

  /**
   * Resolves with what `look` returns, now or later, that is not undefined. Rejects if it throws,
   * after `timeout` ms with what `late` returns, or with the signal's reason.
   */
  until<T>(look: () => T | undefined, timeout: number, late: () => Error, signal?: AbortSignal) {
    return new Promise<T>((resolve, reject) => {
      const settle = (how: () => void): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', again);
        this.#looks.delete(again);
        how();
      };
      const again = (): void => {
        try {
          signal?.throwIfAborted();
          const found = look();
          if (found !== undefined) settle(() => resolve(found));
        } catch (error) {
          settle(() => reject(error));
        }
      };
      const timer = setTimeout(() => settle(() => reject(late())), timeout);
      signal?.addEventListener('abort', again);
      this.#looks.add(again);
      again();
    });
  }
}
