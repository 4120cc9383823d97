import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['{client,storage,scripts}/**/*.test.ts'],
    globalSetup: ['scripts/lib/vitest-etcd.ts'],
    pool: 'forks',
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
});
