// What must not outlive this process: child processes, temporary folders. Their owners undo them
// in order, and awaited, through their disposables. What is registered here and still there when
// this process ends, however it ends, is undone a moment later by a shell: its standard input ends
// with this process, be it by SIGKILL. Only a child started in the very moment of the end can
// escape: it has a process ID to be killed by only when it runs.

import { spawn } from 'node:child_process';
import type { Writable } from 'node:stream';

/** Kills the process group if this process ends. Returns the function that takes it back. */
export function killAtEnd(group: number): () => void {
  return atEnd(`kill -s KILL -- -${group}`);
}

/** Removes the folder if this process ends. Returns the function that takes it back. */
export function removeAtEnd(folder: string): () => void {
  const remove = `rm -rf '${folder.replaceAll("'", "'\\''")}'`;
  // One that was killed just before may still add to it.
  return atEnd(`${remove} || { sleep 1; ${remove}; }`);
}

const undos = new Set<string>();
let shell: Writable | undefined;

/** The last one registered is the first one undone. */
function atEnd(undo: string): () => void {
  undos.add(undo);
  tell();
  return () => {
    undos.delete(undo);
    tell();
  };
}

/** Each line says all that is to be undone. It is written at once: Node waits for no event here. */
function tell(): void {
  shell ??= startShell();
  shell.write(`${[...undos].reverse().join('; ')}\n`);
}

function startShell(): Writable {
  // In a session of its own: what ends this process's group or terminal does not end it too.
  const child = spawn('sh', ['-c', 'while read -r line; do last=$line; done; eval "$last"'], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.on('error', () => {});
  child.stdin.on('error', () => {});
  child.unref();
  return child.stdin;
}
