import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['{client,storage,scripts}/**/*.test.ts'],
    globalSetup: ['scripts/lib/vitest-etcd.ts'],
    pool: 'forks',
    maxWorkers: 2,
    // Far above what any test takes: what is waited for has limits of its own.
    testTimeout: 90_000,
    hookTimeout: 90_000,
  },
});
