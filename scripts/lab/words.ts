// A history in words: an event as a line for people, without its time, and the pieces such lines and
// explanations are made of.

import type { Event, Request } from './history.js';

export function line(event: Event): string {
  switch (event.what) {
    case 'asks':
      return `${event.who} asks for the lock`;
    case 'holds':
      return `${event.who} is told that it holds the lock${event.token === undefined ? '' : ` with token ${event.token}`}`;
    case 'lost':
      return `${event.who} is told that it lost the lock: ${event.reason}`;
    case 'fails':
      return `${event.who} gets no lock: ${event.reason}`;
    case 'releases':
      return `${event.who} releases the lock`;
    case 'sends':
      return `${event.who} sends its ${what(event.request)}`;
    case 'told':
      return `${event.who} is told that its request was ${event.answer.accepted ? `accepted: ${show(event.answer.val)}` : `refused: ${event.answer.reason}`}`;
    case 'fault':
      return `${event.who}: ${event.over ? 'no longer ' : ''}${event.fault}`;
    case 'queued':
      return `the lock's server: token ${event.token} comes into the queue`;
    case 'left':
      return `the lock's server: token ${event.token} has left the queue, revision ${event.revision}`;
    case 'decided':
      return `storage ${event.accepted ? 'accepts' : `refuses (${event.reason})`} the ${what(event.request)}`;
    default:
      return event satisfies never;
  }
}

export function what({ op, key, val, token }: Request): string {
  const carrying = token > 0n ? ` with token ${token}` : '';
  return `${op === 'write' ? `write of ${show(val)} to ${key}` : `read of ${key}`}${carrying}`;
}

export function show(val: string | undefined): string {
  return val === undefined ? 'nothing' : JSON.stringify(val);
}

export function ms(at: number): string {
  return `${Math.round(at)} ms`;
}
