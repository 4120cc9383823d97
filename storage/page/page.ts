/**
 * The page that storage shows to people: four files, and one stream of events that keeps the page
 * live. It only looks; whatever changes something is a POST and none of its business. The files are
 * read once, from beside this one.
 */
import { readFileSync } from 'node:fs';
import { extname } from 'node:path';
import { type NextFunction, type Request, type Response, Router } from 'express';
import type { Rule, rules } from '../fence.js';
import type { Outcome } from '../outcome.js';
import { Feed, type FeedOptions } from './feed.js';

export type PageOptions = Omit<FeedOptions, 'about'> & { rule: Rule };

export type Page = {
  /** Answers GET and HEAD of its own paths and passes on the rest. */
  readonly router: Router;
  /** Shows what became of a request. */
  readonly observe: (outcome: Outcome) => void;
};

/** Throws the system's error when one of its files is missing. */
export function createPage({ rule, ...options }: PageOptions): Page {
  const files = new Map(Object.entries(FILES).map(([path, name]) => [path, load(name)]));
  const { [rule.name]: about = {} }: Record<string, object> = ABOUT;
  const feed = new Feed({ ...options, about: { rule: rule.name, ...about } });
  const router = Router().use((req: Request, res: Response, next: NextFunction) => {
    const file = files.get(req.path);
    if (req.method !== 'GET' && req.method !== 'HEAD') return next();
    if (file) return res.type(file.type).set('Cache-Control', 'no-cache').send(file.body);
    if (req.path !== '/events') return next();
    if (req.method === 'HEAD') return res.type('text/event-stream').end();
    feed.watch(res);
  });
  return { router, observe: (outcome) => feed.observe(outcome) };
}

const FILES = {
  '/': 'index.html',
  '/style.css': 'style.css',
  '/script.js': 'script.js',
  '/icon.svg': 'icon.svg',
};

function load(name: string): { type: string; body: Buffer } {
  return { type: extname(name), body: readFileSync(new URL(name, import.meta.url)) };
}

/** What each rule accepts, and the client that it suits. */
const ABOUT: Record<keyof typeof rules, { accepts: string; client: string }> = {
  equal: {
    accepts: 'A key accepts only the token of its first write.',
    client: 'npx client 2',
  },
  monotonic: {
    accepts: 'A key accepts a token that is not lower than the highest it has seen.',
    client: 'npx client 2 --token revision',
  },
  holder: {
    accepts:
      'A key accepts only the token of whoever holds the lock now, and none lower than the highest it has seen.',
    client: 'npx client 2 --token revision',
  },
};
