// The etcd that all test files share, started before the first and stopped after the last:
// `inject('etcd')` is its endpoints. Tests keep apart by lock names and prefixes of their own;
// a test that hurts etcd starts one for itself (startEtcd).

import type {} from 'vitest';
import type { TestProject } from 'vitest/node';
import { startEtcd } from './etcd.js';

declare module 'vitest' {
  interface ProvidedContext {
    etcd: string[];
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const etcd = await startEtcd();
  project.provide('etcd', etcd.endpoints);
  return () => etcd.stop();
}
