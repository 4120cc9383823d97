import { expect, onTestFinished, test } from 'vitest';
import { trace } from './leftovers.js';
import { Program } from './program.js';

const lib = (name: string) => JSON.stringify(new URL(`./${name}.ts`, import.meta.url).href);

test('an etcd and a storage do not outlive a parent that is killed, nor does their folder', async () => {
  const traced = await trace();
  onTestFinished(() => traced[Symbol.asyncDispose]());
  const script = `
    import { startEtcd } from ${lib('etcd')};
    import { startStorage } from ${lib('program')};
    const etcd = await startEtcd();
    const storage = await startStorage(['--store', 'etcd', '--endpoints', etcd.endpoints.join()]);
    console.log('started ' + [...etcd.endpoints, storage.url].join(' '));`;
  const options = ['--import', 'tsx', '--input-type', 'module', '--eval', script];
  await using parent = Program.start(process.execPath, options, { env: traced.env });
  const [, ...urls] = (await parent.line('started ')).split(' ');
  for (const url of urls) expect((await fetch(url)).status).toBeLessThan(500);
  expect(await traced.leftovers()).not.toEqual([]);

  parent.signal('SIGKILL');

  await expect.poll(() => traced.leftovers(), { timeout: 10_000 }).toEqual([]);
  for (const url of urls) await expect(fetch(url)).rejects.toThrow('fetch failed');
});
