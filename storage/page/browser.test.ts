// The page in a real browser, headless, under the headers that storage sends with it. Skipped where
// there is no Chromium: name one with CHROMIUM_PATH, or have it on PATH.

import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createApp } from '../app.js';
import { rules } from '../fence.js';
import { encodeRequest, type Request } from '../protocol.js';
import { MemoryStore } from '../stores/memory.js';
import { Unavailable } from '../stores/store.js';

const executablePath = findChromium();
const [LOSER, WINNER] = [0x694d82254d5fa305n, 0x694d82254e18770an];
const DESK = { viewport: { width: 1280, height: 800 } };
const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
const EVIL = '<img src=x onerror="alert(1)">';
const REFUSAL =
  'given version (694d82254d5fa305) is different from the existing version (694d82254e18770a)';

describe.skipIf(executablePath === undefined)('the page in a browser', () => {
  let browser: Browser;

  beforeAll(async () => {
    browser = await chromium.launch({
      ...(executablePath && { executablePath }),
      args: [
        ...['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync'],
        ...['--disable-background-networking', '--disable-component-update'],
      ],
    });
  });
  afterAll(() => browser?.close());

  /** Opens the page and waits until it is live. `problems`: what the console, or a dialog, says. */
  async function open({ url }: Storage, options: BrowserContextOptions = DESK) {
    const context = await browser.newContext({ reducedMotion: 'reduce', ...options });
    onTestFinished(() => context.close());
    const page = await context.newPage();
    const problems: string[] = [];
    page.on('console', (message) => void problems.push(message.text()));
    page.on('pageerror', (error) => void problems.push(error.message));
    page.on('dialog', (dialog) => {
      problems.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    await page.goto(url);
    await state(page, 'live');
    return { page, problems };
  }

  it('shows a refused write when it happens, with the reason, beside the value that held', async () => {
    const storage = await Storage.start();
    const { page, problems } = await open(storage, { ...DESK, reducedMotion: 'no-preference' });
    await storage.write('key0', 'value from client 2', WINNER);
    await page.getByRole('cell', { name: 'value from client 2' }).waitFor();
    await storage.write('key0', 'value from client 1', LOSER);
    const refused = page.locator('#decisions li').filter({ hasText: 'refused' });
    await refused.getByText(REFUSAL).waitFor();
    expect(await refused.textContent()).toMatch(
      /write key0.*7587864043912667909.*694d82254d5fa305/s,
    );
    expect(await refused.locator('.result').textContent()).toBe('✕ refused');
    expect(await style(page, '#decisions li:first-child', 'animationName')).toBe('bounce');
    expect(await page.locator('#keys tr.held').textContent()).toContain('value from client 2');
    const results = page.locator('#decisions .result');
    expect(await results.allTextContents()).toEqual(['✕ refused', '✓ accepted']);
    const colours = ['refused', 'accepted'].map((result) =>
      style(page, `#decisions [data-result=${result}] .result`, 'color'),
    );
    expect(new Set(await Promise.all(colours)).size).toBe(2);
    expect(await page.locator('#counts').textContent()).toMatch(/1 accepted\s*✕ 1 refused/);
    expect(problems).toEqual([]);
  });

  it('moves nothing for those who prefer it so', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    await storage.write('key0', 'a', WINNER);
    await storage.write('key0', 'b', LOSER);
    await page.getByText(REFUSAL).waitFor();
    expect(await page.evaluate('document.getAnimations().length')).toBe(0);
  });

  it('shows a value and a key as text, whatever is in it', async () => {
    const storage = await Storage.start();
    const { page, problems } = await open(storage);
    await storage.write(EVIL, EVIL, WINNER);
    await storage.write(EVIL, '<script>alert(2)</script>', LOSER);
    await storage.ask({ op: EVIL });
    await page.locator('#keys .value').getByText(EVIL).waitFor();
    await page.getByText(`unknown op: ${EVIL}`).waitFor();
    expect(await page.locator('#keys .key').textContent()).toBe(EVIL);
    expect(await page.locator('#decisions .key').allTextContents()).toEqual([EVIL, EVIL]);
    expect(await page.locator('main img').count()).toBe(0);
    await page.reload();
    await page.locator('#keys .value').getByText(EVIL).waitFor();
    expect(await page.locator('main img').count()).toBe(0);
    expect(problems).toEqual([]);
  });

  it('spells out what would hide, turn or break the text', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    await storage.write('a\u202eb', ' \u0000\n\u200b\u2028é\u{1f600}\ud800', 1n);
    await storage.write('', '', 2n);
    const row = (i: number) => page.locator('#keys tr').nth(i).locator('bdi').allTextContents();
    await page.locator('#keys tr').nth(1).waitFor();
    expect(await row(0)).toEqual([
      'a\\u{202e}b',
      ' \\u{0}\\u{a}\\u{200b}\\u{2028}é\u{1f600}\ufffd',
    ]);
    expect(await row(1)).toEqual(['empty', 'empty']);
  });

  it('shows tokens of 64 bits to the last digit, and a key that is only read so far', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    for (const version of [2n ** 63n - 1n, -(2n ** 63n)]) {
      await storage.store.update(`${version}`, () => ({ entry: { val: undefined, version } }));
    }
    await page.locator('#keys tr').nth(1).waitFor();
    expect(await page.locator('#keys .token').allTextContents()).toEqual([
      '9223372036854775807',
      '-9223372036854775808',
    ]);
    expect(await page.locator('#keys .hex').allTextContents()).toEqual([
      '7fffffffffffffff',
      '-8000000000000000',
    ]);
    expect(await page.locator('#keys .value').first().textContent()).toBe('not written yet');
  });

  it('says what to do while there is nothing, and names the rule', async () => {
    const storage = await Storage.start({ rule: 'monotonic' });
    const { page } = await open(storage);
    await page.getByText('Nothing is stored yet.').waitFor();
    expect(await page.locator('#client').textContent()).toBe('npx client 2 --token revision');
    expect(await page.locator('#curl').textContent()).toMatch(`}' ${storage.url}/`);
    expect(await page.locator('.rule').textContent()).toMatch(/fence rule\s+monotonic\s+A key /);
    await storage.write('key0', 'a', 1n);
    await page.getByRole('cell', { name: 'a', exact: true }).waitFor();
    expect(await page.locator('.empty').filter({ visible: true }).count()).toBe(0);
  });

  it('keeps the last 100 decisions, the newest first', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    for (let i = 1; i <= 150; i++) await storage.ask({ op: 'read', version: BigInt(i) });
    await page.getByText('150 not found').waitFor();
    const tokens = await page.locator('#decisions .token').allTextContents();
    expect(tokens).toEqual(Array.from({ length: 100 }, (_, i) => `${150 - i}`));
  });

  it('says that the store is unavailable, and when it is back', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    const { list } = storage.store;
    storage.store.list = () => Promise.reject(new Unavailable(`no answer from ${EVIL}`));
    await page.getByRole('alert').getByText(`unavailable: no answer from ${EVIL}`).waitFor();
    storage.store.list = list;
    await page.getByRole('alert').waitFor({ state: 'hidden' });
  });

  it('finds a storage that was restarted, and shows the truth', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    await storage.write('before', 'a', 1n);
    await page.getByRole('cell', { name: 'a', exact: true }).waitFor();
    const { port } = storage;
    await storage.stop();
    await state(page, 'reconnecting');
    const next = await Storage.start({ port, rule: 'monotonic' });
    await next.write('after', 'b', 2n);
    await state(page, 'live');
    await page.getByRole('cell', { name: 'b', exact: true }).waitFor();
    expect(await page.locator('#keys .key').allTextContents()).toEqual(['after']);
    expect(await page.locator('#decisions .key').allTextContents()).toEqual(['after']);
    expect(await page.locator('#rule').textContent()).toBe('monotonic');
  });

  it('tries again when the browser gives up, as it does on an error status', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    storage.failing = true;
    const failed = page.waitForResponse((response) => response.status() === 503);
    storage.cut();
    await failed;
    await state(page, 'reconnecting');
    storage.failing = false;
    await state(page, 'live');
  });

  it('does not take silence for life', async () => {
    const storage = await Storage.start();
    const { page } = await open(storage);
    await page.clock.install();
    await storage.ask({ op: 'read' });
    await page.locator('#decisions li').waitFor();
    const asked = page.waitForRequest('**/events');
    await page.clock.fastForward(34_000);
    expect(await page.locator('#state').textContent()).toBe('live');
    await page.clock.fastForward(2000);
    await asked;
    await state(page, 'live');
  });

  it.each(['light', 'dark'] as const)(
    'is readable on a phone and on a desk: %s',
    async (scheme) => {
      const storage = await Storage.start();
      const long = 'k'.repeat(300);
      await storage.write('key0', 'value from client 2', WINNER);
      await storage.write('key0', 'value from client 1', LOSER);
      await storage.write(long, 'v'.repeat(300), 2n ** 63n - 1n);
      await storage.write('a\u202eb', '', -(2n ** 63n));
      await storage.ask({ op: 'read', key: 'other' });
      vi.spyOn(storage.store, 'update').mockRejectedValueOnce(new Unavailable(long));
      await storage.ask({ op: 'write' });
      await storage.ask({ op: long });
      for (const device of [PHONE, DESK]) {
        const { page, problems } = await open(storage, { ...device, colorScheme: scheme });
        await page.locator('#keys tr').nth(2).waitFor();
        expect(await page.evaluate(`document.documentElement.scrollWidth`)).toBe(
          device.viewport.width,
        );
        expect(await page.evaluate(OUTSIDE)).toEqual([]);
        const texts =
          await page.evaluate<[text: string, colour: string, ground: string][]>(COLOURS);
        expect(texts.length).toBeGreaterThan(50);
        const faint = texts.filter(([, colour, ground]) => contrast(colour, ground) < 4.5);
        expect(faint).toEqual([]);
        expect(isDark(await style(page, 'body', 'backgroundColor'))).toBe(scheme === 'dark');
        expect(problems).toEqual([]);
      }
    },
  );
});

/** The app of storage, and requests that come from the test. */
class Storage {
  static async start({ port = 0, rule = 'equal' }: { port?: number; rule?: Rule } = {}) {
    const storage = new Storage(rule);
    storage.#server.listen(port, '127.0.0.1');
    await once(storage.#server, 'listening');
    onTestFinished(() => storage.stop());
    return storage;
  }

  readonly store = new MemoryStore();
  /** Answer 503 to whoever wants to watch. */
  failing = false;
  readonly #stop = new AbortController();
  readonly #server = createServer();

  private constructor(rule: Rule) {
    const { signal } = this.#stop;
    const app = createApp({ store: this.store, rule: rules[rule], observe: () => {}, signal });
    this.#server.on('request', (req, res) => {
      if (this.failing && req.url === '/events') res.writeHead(503).end();
      else app(req, res);
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async write(key: string, val: string, version: bigint): Promise<void> {
    await this.ask({ op: 'write', key, val, version });
  }

  async ask(request: Partial<Request> & { op: string }): Promise<void> {
    const body = encodeRequest({ key: 'key0', val: '', version: 1n, ...request });
    await (await fetch(this.url, { method: 'POST', body })).text();
  }

  /** Cuts every connection. */
  cut(): void {
    this.#server.closeAllConnections();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await closed;
  }
}

type Rule = keyof typeof rules;

function findChromium(): string | undefined {
  const { CHROMIUM_PATH, PATH = '' } = process.env;
  const names = ['chromium', 'chromium-browser', 'google-chrome'];
  const paths = PATH.split(delimiter).flatMap((folder) => names.map((name) => join(folder, name)));
  return CHROMIUM_PATH || paths.find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function state(page: Page, text: string): Promise<void> {
  await page.locator('#state').getByText(text, { exact: true }).waitFor();
}

/** A computed style of the first element that the selector finds. */
function style(page: Page, selector: string, property: string): Promise<string> {
  return page.evaluate(`getComputedStyle(document.querySelector('${selector}')).${property}`);
}

// These run in the browser.

/** What reaches out of the window sideways. */
const OUTSIDE = `[...document.querySelectorAll('body *')]
  .filter((element) => element.getBoundingClientRect().right > innerWidth
    || element.getBoundingClientRect().left < 0)
  .map((element) => element.outerHTML)`;

/** Every text that is shown, with its colour and that of what is behind it. */
const COLOURS = `[...document.querySelectorAll('body *')]
  .filter((element) => element.checkVisibility())
  .filter((element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((element) => {
    let behind = element;
    const ground = () => getComputedStyle(behind).backgroundColor;
    while (ground() === 'rgba(0, 0, 0, 0)') behind = behind.parentElement;
    return [element.textContent.trim(), getComputedStyle(element).color, ground()];
  })`;

/** As WCAG defines it: 1 to 21. */
function contrast(one: string, other: string): number {
  const [light = 0, dark = 0] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}

function isDark(colour: string): boolean {
  return luminance(colour) < 0.2;
}

function luminance(colour: string): number {
  const [, ...digits] = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(colour) ?? expect.fail(colour);
  const [red = 0, green = 0, blue = 0] = digits.map((digit) => {
    const part = Number(digit) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
