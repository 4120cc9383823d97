// How a program is told to reach etcd: etcdctl's options and environment variables.

import { type Command, Option } from 'commander';
import type { ConnectOptions } from './connect.js';
import { ENDPOINTS } from './endpoints.js';

export type ConnectFlags = ConnectOptions & { password?: string };

/** Adds the options, whose values {@link connectOptions} takes. */
export function addConnectOptions(command: Command): Command {
  // As for etcdctl, a variable that is empty is not set.
  for (const [name, value] of Object.entries(process.env)) {
    if (name.startsWith('ETCDCTL_') && value === '') delete process.env[name];
  }
  return command
    .addOption(
      new Option('--endpoints <urls>', 'etcd members, separated by commas')
        .env('ETCDCTL_ENDPOINTS')
        .default(ENDPOINTS, ENDPOINTS.join(','))
        .argParser(parseEndpoints),
    )
    .addOption(file('--cacert <file>', 'certificates to trust, PEM', 'ETCDCTL_CACERT'))
    .addOption(file('--cert <file>', 'certificate for etcd to trust, PEM', 'ETCDCTL_CERT'))
    .addOption(file('--key <file>', 'private key of that certificate, PEM', 'ETCDCTL_KEY'))
    .addOption(new Option('--user <name[:password]>', 'user in etcd').env('ETCDCTL_USER'))
    .addOption(
      new Option('--password <password>', 'if not given with --user').env('ETCDCTL_PASSWORD'),
    );
}

/** The password may have come with the name or on its own, as for etcdctl. */
export function connectOptions({ password, ...flags }: ConnectFlags): ConnectOptions {
  const { endpoints, cacert, cert, key, user } = flags;
  return {
    ...(endpoints && { endpoints }),
    ...(cacert !== undefined && { cacert }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(user !== undefined && { user: password === undefined ? user : `${user}:${password}` }),
  };
}

function file(flags: string, description: string, variable: string): Option {
  return new Option(flags, description).env(variable);
}

function parseEndpoints(text: string): string[] {
  return text.split(',').map((endpoint) => endpoint.trim());
}
