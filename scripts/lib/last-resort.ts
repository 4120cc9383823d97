// What must not outlive this process: child processes, temporary folders. Their owners undo
// them in order, and awaited, through their disposables; what is registered here is undone at
// once when the process ends before they could (process.exit, an uncaught error, a signal).
// SIGKILL cannot be covered.

/**
 * Registers `undo`, to be called synchronously if this process ends. Returns the function that
 * takes it back. The last one registered is the first one undone.
 */
export function atProcessEnd(undo: () => void): () => void {
  if (undos.size === 0) listen();
  undos.add(undo);
  return () => {
    undos.delete(undo);
    if (undos.size === 0) unlisten();
  };
}

const undos = new Set<() => void>();
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

function listen(): void {
  process.on('exit', undoAll);
  for (const signal of signals) process.on(signal, undoAndDie);
}

function unlisten(): void {
  process.off('exit', undoAll);
  for (const signal of signals) process.off(signal, undoAndDie);
}

function undoAndDie(signal: NodeJS.Signals): void {
  undoAll();
  // A program that handles the signal itself also decides how it ends. For any other, having
  // listened must not change that the signal kills it.
  if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
}

function undoAll(): void {
  unlisten();
  for (const undo of [...undos].reverse()) undo();
  undos.clear();
}
