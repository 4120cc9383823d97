// What most would write: an Express app that parses a body and sends it back.

import type { AddressInfo } from 'node:net';
import express from 'express';

const app = express();
app.use(express.json());
app.post('/', (req, res) => {
  res.json(req.body);
});
const server = app.listen(0, '127.0.0.1', () => {
  console.log(`listening on http://localhost:${(server.address() as AddressInfo).port}`);
});
