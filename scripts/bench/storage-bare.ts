// The floor beneath storage: a bare node:http server that reads a body, parses it and sends it back. As
// anybody would write it, with node's defaults: one could be made faster.

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const server = createServer((req, res) => {
  const chunks: Buffer[] = [];
  req.on('data', (chunk) => chunks.push(chunk));
  req.on('end', () => {
    const body = JSON.parse(Buffer.concat(chunks).toString());
    res.setHeader('Content-Type', 'application/json');
    res.end(JSON.stringify(body));
  });
});
server.listen(0, '127.0.0.1', () => {
  console.log(`listening on http://localhost:${(server.address() as AddressInfo).port}`);
});
