// What was made of etcd's .proto files against what @grpc/proto-loader makes of them: the same
// methods, the same bytes for a request, the same object for an answer.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { loadSync, type MethodDefinition, type ServiceDefinition } from '@grpc/proto-loader';
import protobuf from 'protobufjs';
import { afterAll, expect, test } from 'vitest';
import { codecOf } from './codec.js';

const etcd3 = dirname(createRequire(import.meta.url).resolve('etcd3/package.json'));
const file = join(etcd3, 'proto/rpc.proto');
const options = { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true };
const root = new protobuf.Root().loadSync(file, { keepCase: true }).resolveAll();

// Where it finds protobufjs.
const folder = await mkdtemp(join(import.meta.dirname, '../../node_modules/.codec-test-'));
afterAll(() => rm(folder, { recursive: true }));
await writeFile(join(folder, 'codec.mjs'), codecOf(file));
const made = (await import(join(folder, 'codec.mjs'))).loadSync(file, options);

const services = Object.entries(loadSync(file, options)).filter(
  (entry): entry is [string, ServiceDefinition] => !('format' in entry[1]),
);

test('it has the services and methods', () => {
  expect(services.length).toBeGreaterThan(4);
  expect(Object.keys(made)).toEqual(services.map(([name]) => name));
  for (const [name, methods] of services) {
    expect(Object.keys(made[name])).toEqual(Object.keys(methods));
  }
});

const methods = services.flatMap(([name, all]) =>
  Object.entries(all).map(([method, theirs]) => [theirs.path, made[name][method], theirs] as const),
);

test.each(methods)('%s says the same', (_, ours: Method, theirs) => {
  const { path, originalName, requestStream, responseStream } = theirs;
  expect(ours).toMatchObject({ path, originalName, requestStream, responseStream });
  const [service = '', method = ''] = theirs.path.split('/').slice(1);
  const type = root.lookupService(service).methods[method];
  for (const seed of [0, 1, 2, 3]) {
    const request = sample(type?.resolvedRequestType, seed);
    const bytes = theirs.requestSerialize(request);
    expect(ours.requestSerialize(request).equals(bytes)).toBe(true);
    const answer = theirs.responseSerialize(sample(type?.resolvedResponseType, seed));
    expect(ours.responseDeserialize(answer)).toEqual(theirs.responseDeserialize(answer));
  }
});

type Method = Pick<MethodDefinition<object, object>, 'requestSerialize' | 'responseDeserialize'>;

/** A message with something in each field; of a choice the one that the seed says. With 0, nothing. */
function sample(type: protobuf.Type | null | undefined, seed: number, depth = 0): object {
  if (!type || seed === 0 || depth > 3) return {};
  const chosen = type.fieldsArray.filter(
    ({ name, partOf }) => !partOf || partOf.oneof[seed % partOf.oneof.length] === name,
  );
  return Object.fromEntries(
    chosen.map((field) => {
      const one = value(field, seed, depth);
      return [field.name, field.repeated ? [one] : one];
    }),
  );
}

function value({ resolvedType, type }: protobuf.Field, seed: number, depth: number): unknown {
  if (resolvedType instanceof protobuf.Type) return sample(resolvedType, seed, depth + 1);
  if (resolvedType) return Object.keys(resolvedType.values).at(seed % 2);
  if (type === 'bytes') return Buffer.from([0, seed, 255]);
  if (type === 'string') return `text ${seed} é`;
  if (type === 'bool') return true;
  return /64/.test(type) ? ['7', '9223372036854775807', '4611686018427387905'][seed % 3] : seed;
}
