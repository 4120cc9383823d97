// One worker on a stage, as its director sees it: what it is told to do, what is done to it, and what
// it tells.

import type { Program } from '../lib/program.js';
import type { FaultProxy } from '../lib/proxy.js';
import type { Clock } from './clock.js';
import type { Of } from './decisions.js';
import { faults, isOf } from './history.js';
import { serverOf } from './locks.js';
import type { Stage } from './stage.js';

/** Seconds. */
const HOUR = 3600;

export class Actor {
  #off: 'ahead' | 'behind' | undefined;

  constructor(
    private readonly stage: Stage,
    readonly name: string,
    private readonly program: Program,
    private readonly clock: Clock | undefined,
    private readonly proxies: { servers: readonly FaultProxy[]; storage: FaultProxy },
  ) {}

  /** Does not wait. What it is told while it is paused it does afterwards. */
  tell(...commands: string[]): void {
    for (const command of commands) this.program.write(`${command}\n`);
  }

  /** Takes the lock; resolves when it has it. */
  async acquire(): Promise<void> {
    this.tell('acquire');
    await this.holds();
  }

  /** Reads or writes; resolves with the answer. */
  async ask(command: string, nth: number): Promise<void> {
    this.tell(command);
    await this.answered(nth);
  }

  /** Resolves when its request of that number was answered. */
  async answered(nth: number): Promise<void> {
    const id = `${this.name} ${nth}`;
    await this.stage.until('told', (event) => event.id === id, `${this.name} to be answered`);
  }

  /** Resolves with when it told first that it holds the lock, from index `from` of the history on. */
  holds(from = 0): Promise<Of<'holds'>> {
    return this.stage.until(
      'holds',
      (event) => event.who === this.name,
      `${this.name} to hold the lock`,
      from,
    );
  }

  /** The same from now on. */
  holdsNext(): Promise<Of<'holds'>> {
    return this.holds(this.stage.history.length);
  }

  /** Resolves when the lock was taken from it, or it has released it. */
  async leaves(held?: Of<'holds'>): Promise<void> {
    const grant = held ?? (await this.holds());
    await this.stage.until(
      'left',
      (event) => isOf(grant, event),
      `the lock to be taken from ${this.name}`,
    );
  }

  async revoke(held?: Of<'holds'>): Promise<void> {
    const grant = held ?? (await this.holds());
    const { key } = await this.stage.placeOf(grant);
    this.#fault('its lease is revoked', false);
    // It may be gone by itself.
    await this.stage.takeAway(key).catch(() => {});
  }

  /** Its wall clock, and that alone, is an hour off from now on. */
  setClock(how: 'ahead' | 'behind'): void {
    this.clock?.set(how === 'ahead' ? HOUR : -HOUR);
    if (this.#off) this.#fault(faults[this.#off], true);
    this.#off = how;
    this.#fault(faults[how], false);
  }

  pause(): void {
    this.program.signal('SIGSTOP');
    this.#fault(faults.paused, false);
  }

  resume(): void {
    this.#fault(faults.paused, true);
    this.program.signal('SIGCONT');
  }

  async kill(): Promise<void> {
    this.#fault('killed', false);
    await this.program[Symbol.asyncDispose]();
  }

  /** From where its lock is; of several servers, from those from `first` on. */
  cutOff(first = 0): void {
    const servers = this.proxies.servers.slice(first);
    for (const proxy of servers) proxy.swallow();
    if (servers.length > 0) this.#fault(`cut off from ${serverOf(this.stage.lock)}`, false);
  }

  reconnect(): void {
    this.#fault(`cut off from ${serverOf(this.stage.lock)}`, true);
    for (const proxy of this.proxies.servers) proxy.pass();
  }

  /** Holds back what it sends to storage from now on; returns how to let go. */
  holdBack(): () => void {
    const { storage } = this.proxies;
    storage.dropToServer();
    this.#fault('what it sends is on the way', false);
    return () => {
      this.#fault('what it sends is on the way', true);
      storage.pass();
    };
  }

  /** Resolves when it has sent something to storage, from now on. */
  async sends(): Promise<void> {
    await this.proxies.storage.traffic('toServer');
  }

  #fault(fault: string, over: boolean): void {
    this.stage.fault(this.name, fault, over);
  }
}
