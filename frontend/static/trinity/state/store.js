// @ts-check
/**
 * What the page knows about the agents' slots.
 *
 * @typedef {{max: number, active: number | null, queued: number | null, paused: boolean, version: number}} Capacity
 *   `active` is null while the slot store is out of reach, and so may `queued` be.
 * @typedef {Record<string, Capacity | null>} Changes  null: the agent is gone
 */

/** Of an agent nobody ever told of: the limit is that of a new one. @type {Capacity} */
const NOTHING_KNOWN = { max: 3, active: null, queued: 0, paused: false, version: 0 };

/** Holds one `Capacity` an agent; says `change` ({names}) when some changed and `stale` when the whole grew old or fresh. */
export class CapacityStore extends EventTarget {
  /** @type {Map<string, Capacity>} */
  #agents = new Map();
  #stale = false;
  /** Whose values came by polling since the last snapshot. @type {Set<string>} */
  #merged = new Set();
  /** When the last frame came: what is shown was true then. */
  asOf = new Date();

  /** @param {string} name */
  get(name) {
    return this.#agents.get(name);
  }

  /** @returns {string[]} */
  get names() {
    return [...this.#agents.keys()];
  }

  get stale() {
    return this.#stale;
  }

  set stale(value) {
    if (value === this.#stale) return;
    this.#stale = value;
    this.dispatchEvent(new CustomEvent("stale", { detail: { stale: value, asOf: this.asOf } }));
  }

  /** Notes that the server was heard from. */
  touch() {
    this.asOf = new Date();
    this.stale = false;
  }

  /**
   * Takes a snapshot: it replaces all that is held, older versions too, but for what was asked for since the last one: a
   * snapshot may be of the moment before.
   * @param {Record<string, Capacity>} agents
   */
  replace(agents) {
    const before = this.#agents;
    this.#agents = new Map(Object.entries(agents).map(([name, value]) => [name, this.#newerOf(name, value)]));
    this.#merged.clear();
    this.#tell([...new Set([...before.keys(), ...this.#agents.keys()])]);
  }

  /**
   * Takes all there is, as it was asked for: who is missing is gone, and no version goes back.
   * @param {Record<string, Capacity>} agents
   */
  merge(agents) {
    const gone = this.names.filter((name) => !(name in agents));
    const news = Object.entries(agents).filter(([name, value]) => value.version >= (this.#agents.get(name)?.version ?? 0));
    for (const name of gone) this.#agents.delete(name);
    for (const [name, value] of news) this.#agents.set(name, value);
    this.#merged = new Set(Object.keys(agents));
    this.#tell([...gone, ...news.map(([name]) => name)]);
  }

  /**
   * Notes that the server can't tell who runs: nobody is idle for that.
   * @param {string[]} names those on the screen; those that are held become unknown in any case
   */
  unknow(names) {
    const all = new Set([...this.names, ...names]);
    const known = [...all].filter((name) => this.#agents.get(name)?.active !== null);
    for (const name of known) this.#agents.set(name, { ...(this.#agents.get(name) ?? NOTHING_KNOWN), active: null });
    this.#tell(known);
  }

  /**
   * Takes a delta: whole values, each only where its version is newer than the one held.
   * @param {Changes} agents
   */
  apply(agents) {
    this.#tell(Object.entries(agents).filter(([name, value]) => this.#take(name, value)).map(([name]) => name));
  }

  /** @param {string} name @param {Capacity} value @returns {Capacity} */
  #newerOf(name, value) {
    const held = this.#merged.has(name) ? this.#agents.get(name) : undefined;
    return held && value.active !== null && held.active !== null && held.version > value.version ? held : value;
  }

  /** @param {string} name @param {Capacity | null} value */
  #take(name, value) {
    if (value === null) return this.#agents.delete(name);
    const held = this.#agents.get(name);
    if (held && value.version <= held.version) return false;
    this.#agents.set(name, value);
    return true;
  }

  /** @param {string[]} names */
  #tell(names) {
    if (names.length) this.dispatchEvent(new CustomEvent("change", { detail: { names } }));
  }
}
