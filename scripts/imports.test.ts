// Reads the import lines of the sources and keeps their direction: which file may know which. Tests
// may import what they like, and so may scripts.

import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

/** Who may import what: files without their ending, packages by name; node: everybody. */
const ALLOWED: [from: RegExp, to: RegExp][] = [
  // The lock, which is published by itself. (Some options of etcd3 are made with cockatiel.)
  [/^client\/concurrency\/\w/, /^(etcd3|cockatiel|client\/concurrency\/[^/]+)$/],
  [/^client\/concurrency\/connect-options$/, /^commander$/],
  // The client takes nothing of storage but its protocol and its token of access.
  [/^client\/main$/, /^(commander|client\/(run|key-press|storage-client))$/],
  [/^client\/main$/, /^(client\/concurrency\/connect-options|storage\/auth-token)$/],
  [/^client\/run$/, /^(etcd3|client\/(storage-client|concurrency\/index)|storage\/protocol)$/],
  [/^client\/storage-client$/, /^storage\/protocol$/],
  // Storage runs one way: main, app, service, rules and store. Only main chooses a store.
  [/^storage\/\w/, /^storage\/protocol$/],
  [/^storage\/main$/, /^(commander|storage\/(app|fence|listen|outcome|stores\/[^/]+))$/],
  [/^storage\/listen$/, /^storage\/server$/],
  [/^storage\/app$/, /^(express|helmet|storage\/(body|guard|metrics|outcome|page\/page))$/],
  [/^storage\/app$/, /^storage\/(service|stores\/store)$/],
  [/^storage\/metrics$/, /^(prom-client|storage\/outcome)$/],
  [/^storage\/page\/page$/, /^(express|storage\/(fence|outcome|page\/feed))$/],
  [/^storage\/page\/feed$/, /^storage\/(outcome|stores\/store)$/],
  [/^storage\/service$/, /^storage\/(fence|stores\/store)$/],
  [/^storage\/stores\/[^/]+$/, /^storage\/stores\/(store|entry)$/],
  [/^storage\/stores\/lmdb$/, /^lmdb$/],
  // Storage asks etcd by the lock's own means: its calls always end, its queue has one owner.
  [/^storage\/main$/, /^(etcd3|storage\/(lock|auth-token))$/],
  [/^storage\/main$/, /^client\/concurrency\/(index|connect-options)$/],
  [/^storage\/lock$/, /^(storage\/service|storage\/stores\/store)$/],
  [/^storage\/lock$/, /^(etcd3|client\/concurrency\/(rpc|queue))$/],
  [/^storage\/stores\/etcd$/, /^(etcd3|client\/concurrency\/rpc)$/],
];

const root = fileURLToPath(new URL('..', import.meta.url));

const imports = new Map(
  ['client', 'storage']
    .flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => /(?<!\.test|\.d)\.ts$/.test(name))
        .map((name) => posix.join(folder, name.replace(/\.ts$/, ''))),
    )
    .map((file) => [file, importsOf(file)]),
);

test('every import runs in an allowed direction', () => {
  const wrong = [...imports].flatMap(([from, tos]) =>
    tos
      .filter((to) => !ALLOWED.some(([by, what]) => by.test(from) && what.test(to)))
      .map((to) => `${from} -> ${to}`),
  );
  expect(imports.size).toBeGreaterThan(10);
  expect(wrong).toEqual([]);
});

test('each layer imports only itself and those below it', () => {
  const layers = [/^client\/concurrency\//, /^storage\//, /^client\//];
  const layer = (file: string) => layers.findIndex((name) => name.test(file));
  const upwards = [...imports].flatMap(([from, tos]) =>
    tos.filter((to) => layer(to) > layer(from)).map((to) => `${from} -> ${to}`),
  );
  expect(upwards).toEqual([]);
});

test('no file imports itself by way of others', () => {
  const reaches = (file: string, seen = new Set<string>()): Set<string> => {
    for (const next of imports.get(file) ?? []) if (!seen.has(next)) reaches(next, seen.add(next));
    return seen;
  };
  expect([...imports.keys()].filter((file) => reaches(file).has(file))).toEqual([]);
});

function importsOf(file: string): string[] {
  const source = readFileSync(join(root, `${file}.ts`), 'utf8');
  const specifiers = source.matchAll(
    /^(?:import|export)\b[^;']*?\bfrom '([^']+)'|^import '([^']+)'|\bimport\('([^']+)'\)/gm,
  );
  return [...specifiers]
    .map(([, from, bare, dynamic]) => from ?? bare ?? dynamic ?? '')
    .filter((specifier) => !specifier.startsWith('node:'))
    .map((specifier) =>
      specifier.startsWith('.')
        ? posix.join(posix.dirname(file), specifier.replace(/\.js$/, ''))
        : specifier,
    );
}
