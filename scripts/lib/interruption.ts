// Being told to end, for the scripts that end by themselves otherwise: by a signal, or by the
// reader of their output going away.

import { constants } from 'node:os';

/** Aborted with the signal's name (SIGPIPE when nobody reads the output any more) as reason. */
export function interruption(): AbortSignal {
  const controller = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    // Left in place: under npm a Ctrl-C arrives twice, and the second must not cut cleaning up short.
    process.on(name, () => controller.abort(name));
  }
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', () => controller.abort('SIGPIPE'));
  }
  return controller.signal;
}

/** The exit code that shells give a program ended by `name`: 130 for SIGINT. */
export function exitCode(name: NodeJS.Signals): number {
  return 128 + constants.signals[name];
}
