import { describe, expect, it } from 'vitest';
import {
  DecodeError,
  decodeRequest,
  decodeResponse,
  encodeRequest,
  encodeResponse,
  hex,
} from './protocol.js';

const INTEGERS = [
  0n,
  1n,
  -1n,
  4703569812595502721n,
  4703569812595502727n,
  2n ** 53n - 1n,
  2n ** 53n,
  2n ** 53n + 1n,
  2n ** 63n - 1n,
  -(2n ** 63n),
];

/** The one field that decides most of what follows. */
const val = (json: string | Buffer) => {
  const body = Buffer.concat([Buffer.from('{"val":'), Buffer.from(json), Buffer.from('}')]);
  return decodeRequest(body).val;
};

const failure = (body: string | Buffer) => {
  try {
    return decodeRequest(body);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return error.message;
  }
};

describe('the codec', () => {
  it('decodes the request of a Go client', () => {
    const body =
      '{"op":"write","key":"key0","val":"value from client 1","version":4703569812595502721}';
    const request = {
      op: 'write',
      key: 'key0',
      val: 'value from client 1',
      version: 4703569812595502721n,
    };
    expect(decodeRequest(body)).toEqual(request);
    expect(decodeRequest(Buffer.from(body))).toEqual(request);
    expect(encodeRequest(request)).toBe(body);
  });

  it('writes the fields of an answer in the order of upstream', () => {
    expect(encodeResponse({ err: '', version: -1n, val: 'a"\n' })).toBe(
      '{"val":"a\\"\\n","version":-1,"err":""}',
    );
  });

  it.each(INTEGERS)('keeps %d in both directions', (version) => {
    const request = { op: 'write', key: 'k', val: 'v', version };
    expect(encodeRequest(request)).toContain(`"version":${version}}`);
    expect(decodeRequest(encodeRequest(request))).toEqual(request);
    const response = { val: 'v', version, err: '' };
    expect(encodeResponse(response)).toContain(`"version":${version},`);
    expect(decodeResponse(encodeResponse(response))).toEqual(response);
  });

  it.each([
    '{"op":"read","key":"a","val":"b","version":9007199254740993}',
    '{"op":"","key":"é\u{1f600}","val":"}{:,","version":-0}',
    '{"op":"write","key":"a","val":"\\n\\ud800","version":-9223372036854775808}',
    '{"op":"write","key":"__proto__","val":"x","version":9223372036854775808}',
    '{"op":"write","key":"a","val":"b\n","version":1}',
    '{"op":"write","key":"a","val":"b","version":01}',
    '{"op":"write","key":"a","val":"b","version":1.5}',
  ])('reads the same with and without spaces: %s', (text) => {
    const decoded = (body: string) => {
      try {
        return decodeRequest(body);
      } catch (error) {
        return (error as Error).message.replace(/ at offset.*/, '');
      }
    };
    expect(decoded(text)).toEqual(decoded(`${text} `));
  });

  it('leaves digits inside strings alone', () => {
    const request = {
      op: '"version":4703569812595502721',
      key: '4703569812595502727',
      val: ': 9007199254740993, "version": 1e3',
      version: 9007199254740993n,
    };
    expect(decodeRequest(encodeRequest(request))).toEqual(request);
  });

  it('reads minus zero as zero', () => {
    expect(decodeRequest('{"version":-0}').version).toBe(0n);
  });

  it.each([
    '{}',
    ' \t\r\n{ } ',
    '{"op":null,"key":null,"val":null,"version":null}',
    '{"other":[1.5,{"op":"read"},"x",true,false,null],"__proto__":{"op":"read"}}',
  ])('gives fields that are absent their zero value: %s', (body) => {
    expect(decodeRequest(body)).toEqual({ op: '', key: '', val: '', version: 0n });
  });

  it('takes the last of repeated fields, but a null changes nothing', () => {
    expect(decodeRequest('{"key":"a","key":"b","version":1,"version":2}')).toMatchObject({
      key: 'b',
      version: 2n,
    });
    expect(decodeRequest('{"key":"a","key":null}').key).toBe('a');
  });

  it('finds fields in other letter case, as Go does', () => {
    expect(decodeRequest('{"OP":"read","\\u004bey":"k","VER\\u017fION":7}')).toMatchObject({
      op: 'read',
      key: 'k',
      version: 7n,
    });
    expect(decodeRequest('{"op":"read","OP":"write"}').op).toBe('write');
    expect(decodeRequest('{"\u212aey":"kelvin"}').key).toBe('kelvin');
    expect(decodeRequest('{"op ":"x","opp":"x","o":"x","ver\u0131on":1}')).toMatchObject({
      op: '',
      version: 0n,
    });
  });

  it('decodes every escape', () => {
    expect(val('"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00e9\\ud83d\\ude00"')).toBe(
      '"\\/\b\f\n\r\t\u0000\u00e9\u{1f600}',
    );
    expect(val('"\u007f\u0085\u2028\u{1f600}"')).toBe('\u007f\u0085\u2028\u{1f600}');
  });

  it('replaces what is no Unicode text by U+FFFD', () => {
    expect(val('"a\\ud800b"')).toBe('a\ufffdb');
    expect(val('"\\udc00\\ud800\\ud83d\\ude00"')).toBe('\ufffd\ufffd\u{1f600}');
    expect(val(Buffer.from([0x22, 0x61, 0xff, 0x62, 0x22]))).toBe('a\ufffdb');
    expect(decodeRequest('{"key":"\\udfff"}').key).toBe('\ufffd');
  });

  it.each([
    ['{"version":"12"}', 'expected version to be a signed 64-bit integer, got a string'],
    ['{"version":1.5}', 'expected version to be a signed 64-bit integer, got 1.5'],
    ['{"version":1.0}', 'expected version to be a signed 64-bit integer, got 1.0'],
    ['{"version":1e3}', 'expected version to be a signed 64-bit integer, got 1e3'],
    ['{"version":true}', 'expected version to be a signed 64-bit integer, got true'],
    ['{"version":{}}', 'expected version to be a signed 64-bit integer, got an object'],
    ['{"version":[1]}', 'expected version to be a signed 64-bit integer, got an array'],
    [
      '{"version":9223372036854775808}',
      'expected version to be a signed 64-bit integer, got 9223372036854775808',
    ],
    [
      '{"version":-9223372036854775809}',
      'expected version to be a signed 64-bit integer, got -9223372036854775809',
    ],
    [
      `{"version":${'9'.repeat(100_000)}}`,
      `expected version to be a signed 64-bit integer, got ${'9'.repeat(40)}...`,
    ],
    [
      '{"VERSION":"12","version":12}',
      'expected version to be a signed 64-bit integer, got a string',
    ],
    ['{"op":1}', 'expected op to be a string, got 1'],
    ['{"key":["a"]}', 'expected key to be a string, got an array'],
    ['{"val":{"a":"b"}}', 'expected val to be a string, got an object'],
    ['{"val":false}', 'expected val to be a string, got false'],
  ])('refuses a field of the wrong type: %s', (body, message) => {
    expect(failure(body)).toBe(message);
  });

  it.each([
    ['', 'expected a JSON object, got the end at offset 0'],
    [' ', 'expected a JSON object, got the end at offset 1'],
    ['null', 'expected a JSON object, got "n" at offset 0'],
    ['[]', 'expected a JSON object, got "[" at offset 0'],
    ['"read"', 'expected a JSON object, got "\\"" at offset 0'],
    ['\ufeff{}', 'expected a JSON object, got "\ufeff" at offset 0'],
    ['{', 'expected a field name, got the end at offset 1'],
    ["{'op':1}", 'expected a field name, got "\'" at offset 1'],
    ['{"op":"a",}', 'expected a field name, got "}" at offset 10'],
    ['{"op"}', 'expected ":", got "}" at offset 5'],
    ['{"op":}', 'expected a value, got "}" at offset 6'],
    ['{"op":"read"', 'expected "," or "}", got the end at offset 12'],
    ['{"op":"read" "key":""}', 'expected "," or "}", got "\\"" at offset 13'],
    ['{"op":"read}', 'expected a valid string, got "\\"" at offset 6'],
    ['{"op":"\n"}', 'expected a valid string, got "\\"" at offset 6'],
    ['{"op":"\\x41"}', 'expected a valid string, got "\\"" at offset 6'],
    ['{"op":"\\u12"}', 'expected a valid string, got "\\"" at offset 6'],
    ['{"version":01}', 'expected "," or "}", got "1" at offset 12'],
    ['{"version":+1}', 'expected a value, got "+" at offset 11'],
    ['{"version":1.}', 'expected "," or "}", got "." at offset 12'],
    ['{"version":NaN}', 'expected a value, got "N" at offset 11'],
    ['{"version":0x10}', 'expected "," or "}", got "x" at offset 12'],
    ['{"a":[1,]}', 'expected a value, got "]" at offset 8'],
    ['{"a":[1}', 'expected "," or "]", got "}" at offset 7'],
    ['{"a":\u00a01}', 'expected a value, got "\u00a0" at offset 5'],
    ['{}{}', 'expected nothing after the JSON object, got "{" at offset 2'],
    ['{} \u{1f600}', 'expected nothing after the JSON object, got "\u{1f600}" at offset 3'],
  ])('says what is wrong with %j', (body, message) => {
    expect(failure(body)).toBe(message);
  });

  it('takes nesting of 1000 levels and refuses more without overflowing the stack', () => {
    const nested = (depth: number) => `{"op":"read","x":${'['.repeat(depth)}${']'.repeat(depth)}}`;
    expect(failure(nested(999))).toMatchObject({ op: 'read' });
    expect(failure(nested(1000))).toBe('nested deeper than 1000 levels');
    expect(failure(`{"x":${'['.repeat(1_000_000)}`)).toBe('nested deeper than 1000 levels');
    expect(failure('{"x":'.repeat(200_000))).toBe('nested deeper than 1000 levels');
  });

  it.each([
    ['a', 2 ** 20],
    ['\n', 2 ** 19],
    ['\u{1f600}', 2 ** 18],
  ])('keeps a long string of %j', (unit, count) => {
    const value = unit.repeat(count);
    expect(decodeRequest(encodeRequest({ op: '', key: '', val: value, version: 1n })).val).toBe(
      value,
    );
  });
});

describe('hex', () => {
  it("prints as Go's %x", () => {
    expect(hex(4703569812595502721n)).toBe('41466fd2f0016e81');
    expect(hex(0x694d82254d5fa305n)).toBe('694d82254d5fa305');
    expect(hex(0n)).toBe('0');
    expect(hex(-1n)).toBe('-1');
    expect(hex(-(2n ** 63n))).toBe('-8000000000000000');
  });
});
