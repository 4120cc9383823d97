// Where etcd is unless told otherwise. Apart, so that a program can name it without loading gRPC.

/** The endpoints of etcd's own three-member example cluster, contrib/lock's default. */
export const ENDPOINTS: readonly string[] = [
  'http://127.0.0.1:2379',
  'http://127.0.0.1:22379',
  'http://127.0.0.1:32379',
];
