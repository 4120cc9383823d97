/**
 * Entries in an LMDB file: an answer comes after its write is flushed to disk, and the updates that
 * arrive during one flush share the next. One process at a time: LMDB itself would let more share a
 * folder, but two storages on one folder are a mistake. Deadlines have no part in who owns it: LMDB
 * lists its readers by process and knows through file locks which of them live.
 */
import { randomUUID } from 'node:crypto';
import { closeSync, openSync, statSync, truncateSync, writeSync } from 'node:fs';
import { link, mkdir, open as openFile, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { constants } from 'node:os';
import { join, resolve } from 'node:path';
import { open, type RootDatabase } from 'lmdb';
import { decodeEntry, encodeEntry } from './entry.js';
import {
  type Decision,
  type Entry,
  type Listing,
  NoRoom,
  type Store,
  Unavailable,
} from './store.js';

/** Another storage has the folder open, in this process or another. */
export class FolderInUse extends Error {
  override readonly name = 'FolderInUse';
  readonly code = 'FOLDER_IN_USE';
}

export class LmdbStore implements Store {
  readonly #folder: string;
  readonly #identity: string;
  #db: Database;
  /** The identities of the data and of the lock file, without which others could join. */
  readonly #files: string;
  readonly #waiting: Update[] = [];
  #committing: Promise<void> | undefined;
  #closed = false;
  /** The length of the file, and how far the current transaction may need it, in bytes. */
  #length = 0;
  #end = 0;
  #perUpdate = 0;
  /** The last commit failed, which may have left LMDB unusable. */
  #suspect = false;

  private constructor(folder: string, identity: string, db: Database, files: string) {
    this.#folder = folder;
    this.#identity = identity;
    this.#db = db;
    this.#files = files;
  }

  /**
   * Creates what is missing of the folder, for its owner only. Rejects with {@link FolderInUse} and,
   * when the folder or what is in it cannot be used, with {@link Unavailable}.
   */
  static async open(folder: string): Promise<LmdbStore> {
    const path = resolve(folder);
    const identity = await mkdir(path, { recursive: true, mode: 0o700 })
      .then(() => identify(path))
      .catch((error) => {
        throw new Unavailable(`cannot use ${path} as the data folder: ${text(error)}`);
      });
    // LMDB would see it too, but to wait for a write of our own would block us for ever.
    if (opened.has(identity)) throw inUse(path, `this process (${process.pid})`);
    opened.add(identity);
    try {
      const db = await openDatabase(path);
      return new LmdbStore(path, identity, db, await identifyFiles(path));
    } catch (error) {
      opened.delete(identity);
      throw error;
    }
  }

  async read(key: string): Promise<Entry | undefined> {
    const bytes = encodeKey(key);
    return bytes.length > KEY_LIMIT ? undefined : this.#get(bytes);
  }

  async update(key: string, decide: Update['decide']): Promise<Decision> {
    const bytes = encodeKey(key);
    if (bytes.length > KEY_LIMIT) {
      throw new NoRoom(`expected a key of at most ${KEY_LIMIT - 1} bytes, got ${bytes.length - 1}`);
    }
    return new Promise((resolve, reject) => {
      this.#waiting.push({ key: bytes, decide, resolve, reject });
      this.#committing ??= this.#commitAll();
    });
  }

  async list(limit: number): Promise<Listing> {
    const found = this.#reading(() =>
      Array.from(this.#db.getRange({ limit: limit + 1 }), ({ key, value }): [string, Entry] => [
        key.toString('utf8', 1),
        decodeEntry(value.toString('utf8', 0, LISTED)),
      ]),
    );
    return { entries: found.slice(0, limit), more: found.length > limit };
  }

  async check(): Promise<void> {
    await this.#present();
    this.#get(encodeKey(''));
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#committing;
    await this.#db.close();
    opened.delete(this.#identity);
  }

  async #commitAll(): Promise<void> {
    while (this.#waiting.length > 0) await this.#commit();
    this.#committing = undefined;
  }

  /** Settles all updates that wait, in one transaction. Never rejects. */
  async #commit(): Promise<void> {
    try {
      await this.#present();
      await this.#revive();
    } catch (error) {
      for (const { reject } of this.#waiting.splice(0)) reject(error);
      return;
    }
    const batch = this.#waiting.splice(0);
    let failed: unknown;
    try {
      // Never throws inside: lmdb-js would commit all the same, or crash where LMDB cannot go on. What
      // LMDB cannot do either changed nothing or makes the commit fail.
      const settlements = await this.#db.transaction(() => {
        this.#look();
        return batch.map((one) => {
          try {
            return this.#do(one);
          } catch (error) {
            failed ??= error;
            return () => this.#explain(error).then(one.reject);
          }
        });
      });
      for (const settle of settlements) settle();
    } catch (error) {
      this.#suspect = true;
      // Where lmdb-js says why a commit failed; unhandled, it would end the process.
      const why = await Promise.resolve(property(error, 'commitError') ?? error).catch((e) => e);
      const reason = await this.#explain(failed ?? why);
      // At once, for the reads; the next update tries again.
      await this.#revive().catch(() => {});
      for (const { reject } of batch) reject(reason);
    }
  }

  /** Within the transaction: what to do once it is committed. Throws what LMDB cannot do. */
  #do({ key, decide, resolve, reject }: Update): () => void {
    const current = this.#get(key);
    let decision: Decision;
    try {
      decision = decide(current);
    } catch (error) {
      return () => reject(error);
    }
    if ('entry' in decision && decision.entry !== current) {
      const value = Buffer.from(encodeEntry(decision.entry));
      this.#makeRoom(value.length);
      this.#db.putSync(key, value);
    }
    return () => resolve(decision);
  }

  /** Takes stock of the file for {@link #makeRoom}. */
  #look(): void {
    const { lastPageNumber, pageSize, treeDepth } = this.#db.getStats() as Stats;
    this.#length = statSync(join(this.#folder, FILE)).size;
    this.#end = (lastPageNumber + SPARE_PAGES) * pageSize;
    // A copy of each page on the way to the entry, what a split adds, and the rest of a last page.
    this.#perUpdate = (treeDepth + 3) * pageSize;
  }

  /**
   * Makes the file longer before LMDB does, so that the full disk is met here: where a write fails in
   * LMDB, lmdb-js 3.5.6 prints why into a buffer that is too short, and before long that ends the
   * process. Throws the system's error.
   */
  #makeRoom(bytes: number): void {
    this.#end += this.#perUpdate + bytes;
    if (this.#end <= this.#length) return;
    const fd = openSync(join(this.#folder, FILE), 'r+');
    try {
      while (this.#length < this.#end) this.#length += writeSync(fd, ZEROS, 0, null, this.#length);
    } finally {
      closeSync(fd);
    }
  }

  /** Rejects when what is written now could not be found again. */
  async #present(): Promise<void> {
    if (this.#closed)
      throw new Unavailable(`nothing was written: the data in ${this.#folder} is closed`);
    if ((await identifyFiles(this.#folder).catch(text)) === this.#files) return;
    throw new Unavailable(
      `the data in ${this.#folder} was removed or replaced while in use: put it back and restart storage`,
    );
  }

  /**
   * Opens the file again where LMDB gave up for good, as it does when it cannot write its first
   * pages. Has to be found out, because asynchronous transactions would then never end.
   */
  async #revive(): Promise<void> {
    if (!this.#suspect) return;
    try {
      this.#db.transactionSync(() => {});
    } catch {
      await this.#db.close();
      this.#db = await openDatabase(this.#folder);
    }
    this.#suspect = false;
  }

  /** From the current transaction, if there is one. */
  #get(key: Buffer): Entry | undefined {
    return this.#reading(() => {
      const value = this.#db.getBinary(key);
      return value && decodeEntry(value.toString());
    });
  }

  #reading<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      throw new Unavailable(`cannot read the data in ${this.#folder}: ${text(error)}`);
    }
  }

  async #explain(cause: unknown): Promise<Error> {
    if (await this.#isFull(property(cause, 'code'))) {
      return new NoRoom(`the disk of ${this.#folder} is full: writes work again when it has room`);
    }
    return new Unavailable(`cannot write to ${this.#folder}: ${text(cause)}`, { cause });
  }

  async #isFull(code: unknown): Promise<boolean> {
    if (code !== EIO) return FULL.has(code);
    // What LMDB calls a write that was cut short, for which a full disk is the usual reason.
    const disk = await statfs(this.#folder).catch(() => undefined);
    return disk !== undefined && disk.bavail * disk.bsize < 64 * 1024;
  }
}

type Database = RootDatabase<Buffer, Buffer>;

type Update = {
  readonly key: Buffer;
  readonly decide: (current: Entry | undefined) => Decision;
  readonly resolve: (decision: Decision) => void;
  readonly reject: (error: unknown) => void;
};

/** Bytes of a value in a listing. */
const LISTED = 1024;

const FILE = 'data.mdb';
const LOCK = 'lock.mdb';

/** Of lmdb-js for pages of 4 KiB, whatever the page size; with the byte of {@link encodeKey}. */
const KEY_LIMIT = 1978;

const { EDQUOT, EFBIG, EIO, ENOSPC } = constants.errno;
const MDB_MAP_FULL = -30792;
const FULL = new Set<unknown>(['EDQUOT', 'EFBIG', 'ENOSPC', EDQUOT, EFBIG, ENOSPC, MDB_MAP_FULL]);

/** Of what lmdb-js tells about a database. */
type Stats = { lastPageNumber: number; pageSize: number; treeDepth: number };

/** For LMDB's list of free pages, and for what the others take that it uses itself. */
const SPARE_PAGES = 64;
const ZEROS = Buffer.alloc(2 ** 20);

/** Where things are on LMDB's first two pages, and how much of them there is to read. */
const [MAGIC, VERSION, PAGE_SIZE, ROOT, META_SIZE] = [24, 28, 48, 136, 144];

/** The folders that are open in this process. */
const opened = new Set<string>();

async function openDatabase(folder: string): Promise<Database> {
  let db: Database;
  try {
    const isNew = await inspect(join(folder, FILE));
    await createLock(join(folder, LOCK), isNew);
    db = open<Buffer, Buffer>({
      path: folder,
      noSubdir: false, // lmdb-js takes a folder with a dot in its name for a file
      encoding: 'binary',
      keyEncoding: 'binary',
      overlappingSync: false, // a commit is not over, nor seen by reads, before it is flushed
      eventTurnBatching: false, // its own promises would reject where nobody handles them
    });
  } catch (error) {
    throw new Unavailable(
      `cannot open ${join(folder, FILE)}: ${text(error)}; if it is damaged, restore it from a backup or move it away`,
    );
  }
  try {
    // A transaction, so that of two that open the folder together one is first.
    db.transactionSync(() => own(db, folder));
    return db;
  } catch (error) {
    await db.close();
    throw error;
  }
}

/** Throws for what LMDB would crash on instead of refusing it. Returns whether it is to begin anew. */
async function inspect(file: string): Promise<boolean> {
  // Made here so that it is its owner's only.
  const handle = await openFile(file, 'a+', 0o600);
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw new Error('not a file');
    if (stats.size === 0) return true;
    const page = Buffer.alloc(META_SIZE);
    // Two pages of the same form, in which the first tells how long a page is.
    for (const position of [0, 1]) {
      await handle.read(page, 0, META_SIZE, position * page.readUInt32LE(PAGE_SIZE));
      if (page.readUInt32LE(MAGIC) !== 0xbeefc0de || page.readUInt32LE(VERSION) !== 2) {
        throw new Error('not an LMDB file of format 2');
      }
      const pages = stats.size / page.readUInt32LE(PAGE_SIZE);
      if (pages < 2 || page.readBigInt64LE(ROOT) >= pages) throw new Error('the file is cut short');
    }
    return false;
  } finally {
    await handle.close();
  }
}

/**
 * With a full disk LMDB would crash on a lock file, which it maps before it has blocks, and on the
 * first pages of new data: makes sure that there is room for both. The lock file appears at once and
 * complete, because another process may be about to do the same.
 */
async function createLock(file: string, isNew: boolean): Promise<void> {
  if (!isNew && (await stat(file).catch(() => undefined))) return;
  const draft = `${file}.${randomUUID()}`;
  try {
    await writeFile(draft, Buffer.alloc(64 * 1024), { flush: true, mode: 0o600 });
    truncateSync(draft, 16 * 1024);
    await link(draft, file).catch((error) => {
      if (error.code !== 'EEXIST') throw error;
    });
  } finally {
    await rm(draft, { force: true });
  }
}

/** Until now this process reads nothing, so whoever is listed is another. */
function own(db: Database, folder: string): void {
  db.readerCheck();
  const [pid] = /^\s*\d+(?=\s+[\da-f]+\s+(?:-|\d+)$)/m.exec(db.readerList()) ?? [];
  if (pid !== undefined) throw inUse(folder, `process ${pid.trim()}`);
  // Lists this process; the place in the list stays when the transaction is done.
  db.useReadTransaction().done();
}

function inUse(folder: string, owner: string): FolderInUse {
  return new FolderInUse(
    `the data folder ${folder} is in use by ${owner}: stop that one first, or choose another folder`,
  );
}

/** The leading byte is there because LMDB has no empty key. */
function encodeKey(key: string): Buffer {
  return Buffer.from(`=${key}`);
}

async function identifyFiles(folder: string): Promise<string> {
  const files = await Promise.all([FILE, LOCK].map((name) => identify(join(folder, name))));
  return files.join();
}

/** The same for two paths of the same file. */
async function identify(path: string): Promise<string> {
  const { dev, ino } = await stat(path, { bigint: true });
  return `${dev}:${ino}`;
}

function property(value: unknown, name: string): unknown {
  return value instanceof Error ? Reflect.get(value, name) : undefined;
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
