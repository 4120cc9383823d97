import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['{client,storage,scripts}/**/*.test.ts'],
    globalSetup: ['scripts/lib/vitest-etcd.ts'],
    pool: 'forks',
    // One more than the two cores that are expected: most tests wait for much of their time.
    maxWorkers: 3,
    // Far above what any test takes: what is waited for has limits of its own.
    testTimeout: 90_000,
    hookTimeout: 90_000,
  },
});
