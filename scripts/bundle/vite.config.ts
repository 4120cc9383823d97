// Makes one file of `client` and the packages it runs on, and another of what `client --help` needs
// no part of: to find, read and compile hundreds of files takes most of the time that the program
// takes. The library stays as it is: its users bring their own etcd3.

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { defineConfig, type Plugin } from 'vite';
import { codecOf } from './codec.js';

const require = createRequire(import.meta.url);

export default defineConfig({
  logLevel: 'warn',
  plugins: [codec(), required()],
  ssr: { noExternal: true },
  // CommonJS has it, and etcd3 asks for it.
  define: { __dirname: 'import.meta.dirname' },
  build: {
    ssr: true,
    target: 'node20',
    emptyOutDir: false,
    rolldownOptions: {
      checks: { pluginTimings: false },
      // Two, so that what they share is in a file of its own: no file must run main.js once more.
      input: ['client/main.ts', 'client/run.ts'],
      output: {
        entryFileNames: '[name].js',
        // Not by a name that a file of the library or of storage goes by.
        chunkFileNames: 'bundle-[name].js',
        minify: false,
      },
    },
  },
});

/** gRPC would load it too, but only for services that a client does not offer. */
function codec(): Plugin {
  const file = join(dirname(require.resolve('etcd3/package.json')), 'proto/rpc.proto');
  return standIn('codec', /^@grpc\/proto-loader$/, () => codecOf(file));
}

/** To import a module of Node's own touches all of it, and so loads what it only loads by need. */
function required(): Plugin {
  return standIn('required', /^node:(?!module$)/, (id) => `module.exports = require('${id}');`);
}

function standIn(name: string, what: RegExp, text: (id: string) => string): Plugin {
  const own = `\0${name}:`;
  return {
    name,
    enforce: 'pre',
    resolveId: (id, importer) =>
      what.test(id) && !importer?.startsWith(own) ? `${own}${id}` : undefined,
    load: (id) => (id.startsWith(own) ? text(id.slice(own.length)) : undefined),
  };
}
