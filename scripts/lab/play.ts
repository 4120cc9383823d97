// One run of one cause, from an empty stage to its verdict.

import { type Cause, type CauseName, causes } from './causes.js';
import type { Event } from './history.js';
import { Stage, type StageOptions } from './stage.js';
import { type Verdict, verdict } from './verdict.js';

export type Run = { readonly history: readonly Event[]; readonly seen: Verdict };

/** Rejects with the signal's reason when told to end. */
export async function play(name: CauseName, options: StageOptions): Promise<Run> {
  const { members = 1, clock = false, play }: Cause = causes[name];
  await using stage = await Stage.open({ ...options, members, clock });
  await play(stage);
  await stage.complete();
  return { history: stage.history, seen: verdict(stage.history) };
}
