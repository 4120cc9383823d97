// Writes the module that stands in for @grpc/proto-loader in the bundle of the client. That one
// reads etcd's .proto files and makes code of them each time a program starts, which takes longer
// than to take a lock; here protobufjs makes the same code once, at build time. Only what a client
// needs of it: requests are written and answers read.

import { loadSync } from '@grpc/proto-loader';
import protobuf from 'protobufjs';

type Declared = protobuf.Type | protobuf.Enum;

/** The text of a module whose `loadSync` gives the services of this file, whatever it is asked for. */
export function codecOf(file: string): string {
  const root = new protobuf.Root().loadSync(file, { keepCase: true });
  root.resolveAll();
  const services = Object.entries(loadSync(file)).flatMap(([service, methods]) => {
    if ('format' in methods) return [];
    return [{ service, methods, types: root.lookupService(service).methodsArray }];
  });
  const types = services.flatMap((one) => one.types);
  const written = reach(types.map((method) => method.resolvedRequestType));
  const read = reach(types.map((method) => method.resolvedResponseType));
  return [
    `import minimal from 'protobufjs/minimal.js';`,
    'const { Reader, Writer, util } = minimal;',
    ...[...new Set([...written, ...read])].map((type) =>
      declaration(type, written.has(type), read.has(type)),
    ),
    'export const loadSync = (file, options) => ({',
    ...services.map(({ service, methods, types }) => {
      const definitions = types.map((type) => definition(type, methods[type.name]));
      return `'${service}': {\n${definitions.join('\n')}\n},`;
    }),
    '});',
  ].join('\n');
}

/** These types, and those of their fields, and so on. */
function reach(types: readonly (Declared | null)[], reached = new Set<Declared>()): Set<Declared> {
  for (const type of types) {
    if (type === null || reached.has(type)) continue;
    reached.add(type);
    if (type instanceof protobuf.Type) reach(fieldTypes(type), reached);
  }
  return reached;
}

function fieldTypes(type: protobuf.Type): (Declared | null)[] {
  return type.fieldsArray.map((field) => field.resolvedType);
}

function declaration(type: Declared, written: boolean, read: boolean): string {
  const { Type, converter, decoder, encoder } = protobuf;
  if (type instanceof protobuf.Enum) {
    return `const ${name(type)} = { values: ${JSON.stringify(type.valuesById)} };`;
  }
  const parts = [
    `ctor: ${Type.generateConstructor(type)}`,
    ...(written ? [`encode: ${encoder(type)}`, `fromObject: ${converter.fromObject(type)}`] : []),
    ...(read ? [`decode: ${decoder(type)}`, `toObject: ${converter.toObject(type)}`] : []),
  ];
  // The code names the types of its fields by their place in a list.
  const own = fieldTypes(type).map((one) => one && name(one));
  const code = parts.join(',\n').replaceAll(/\btypes\[(\d+)\]/g, (_, place) => `${own[place]}`);
  return `const ${name(type)} = {\n${code}\n};`;
}

function definition(method: protobuf.Method, known: object | undefined): string {
  const { resolvedRequestType, resolvedResponseType } = method;
  if (!resolvedRequestType || !resolvedResponseType) throw new Error(`${method} lacks a type`);
  const [request, response] = [name(resolvedRequestType), name(resolvedResponseType)];
  const names = ['path', 'originalName', 'requestStream', 'responseStream'];
  return `${method.name}: {
    ...${JSON.stringify(known, names)},
    requestSerialize: (value) => ${request}.encode(${request}.fromObject(value)).finish(),
    responseDeserialize: (bytes) => ${response}.toObject(${response}.decode(bytes), options),
  },`;
}

function name(type: Declared): string {
  return type.fullName.replaceAll('.', '_');
}
