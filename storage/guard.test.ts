import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { describe, expect, it } from 'vitest';
import { createGuard, type GuardOptions } from './guard.js';

const HOST = 'localhost:8080';

/** The status that a request is turned away with; undefined lets it in. */
function ask(headers: IncomingHttpHeaders, options: GuardOptions = {}, local = '127.0.0.1') {
  const req = {
    method: 'POST',
    headers: { host: HOST, ...headers },
    socket: { localAddress: local },
  };
  return createGuard(options)(req as IncomingMessage)?.status;
}

describe('a request that came over loopback', () => {
  it.each(['localhost:8080', 'LOCALHOST', '127.0.0.1:8080', '127.1.2.3:80', '[::1]:8080'])(
    'may be for %s',
    (host) => {
      for (const local of ['127.0.0.1', '::1', '::ffff:127.0.0.1']) {
        expect(ask({ host }, {}, local)).toBeUndefined();
      }
    },
  );

  it.each([
    'evil.example:8080',
    'localhost.evil.example:8080',
    '127.0.0.1.evil.example',
    '127.evil.example',
    '192.168.1.1:8080',
    'x',
    '',
    'localhost@evil.example',
    '[::1].evil.example:8080',
  ])('may not be for %s: the name may be an attacker’s', (host) => {
    for (const local of ['127.0.0.1', '::1', '::ffff:127.0.0.1']) {
      expect(ask({ host }, {}, local)).toBe(403);
    }
  });

  it('may be for the name that storage was told to listen on', () => {
    expect(ask({ host: 'myhost:8080' }, { host: 'myhost' })).toBeUndefined();
  });

  it('may come without a Host, as before HTTP/1.1', () => {
    expect(ask({ host: undefined })).toBeUndefined();
  });
});

it('a request over another address may be for any name', () => {
  expect(ask({ host: 'storage.example' }, {}, '192.168.1.1')).toBeUndefined();
});

describe('a request of a web page', () => {
  it('is let in from the own origin', () => {
    expect(ask({ origin: `http://${HOST}`, 'sec-fetch-site': 'same-origin' })).toBeUndefined();
  });

  it.each(['http://evil.example', 'http://localhost:8081', 'null', 'http://localhost', ''])(
    'is turned away from the origin "%s"',
    (origin) => expect(ask({ origin })).toBe(403),
  );

  it.each(['cross-site', 'same-site'])('is turned away when the browser calls it %s', (site) => {
    expect(ask({ 'sec-fetch-site': site, 'sec-fetch-dest': 'empty' })).toBe(403);
    expect(ask({ 'sec-fetch-site': site, 'sec-fetch-dest': 'document' })).toBe(403);
  });

  it('is let in when a person follows a link from elsewhere', () => {
    const headers = { host: HOST, 'sec-fetch-site': 'cross-site', 'sec-fetch-dest': 'document' };
    const req = { method: 'GET', headers, socket: { localAddress: '127.0.0.1' } };
    expect(createGuard()(req as unknown as IncomingMessage)).toBeUndefined();
  });
});

describe('with a token', () => {
  const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`;

  it.each(['Bearer s3cret', 'bearer s3cret ', basic('anybody:s3cret'), basic(':s3cret')])(
    'lets in who brings it: %s',
    (authorization) => expect(ask({ authorization }, { token: 's3cret' })).toBeUndefined(),
  );

  it.each([
    undefined,
    '',
    'Bearer',
    'Bearer ',
    'Bearer s3cre',
    'Bearer s3cret1',
    'Bearer s3cret s3cret',
    's3cret',
    'Token s3cret',
    basic('s3cret:'),
    basic('a:b:s3cret'),
  ])('turns away who does not: %s', (authorization) =>
    expect(ask({ authorization }, { token: 's3cret' })).toBe(401),
  );

  it('still turns away a page of another origin, whose browser may know the token', () => {
    const headers = { authorization: 'Bearer s3cret', origin: 'http://evil.example' };
    expect(ask(headers, { token: 's3cret' })).toBe(403);
  });
});
