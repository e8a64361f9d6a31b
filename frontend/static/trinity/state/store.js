// @ts-check
/**
 * What the page knows about the agents' slots.
 *
 * @typedef {{max: number, active: number | null, queued: number, paused: boolean, version: number}} Capacity
 *   `active` is null while the slot store is out of reach.
 * @typedef {Record<string, Capacity | null>} Changes  null: the agent is gone
 */

/** Holds one `Capacity` an agent; says `change` ({names}) when some changed and `stale` when the whole grew old or fresh. */
export class CapacityStore extends EventTarget {
  /** @type {Map<string, Capacity>} */
  #agents = new Map();
  #stale = false;
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
   * Takes a snapshot: it replaces all that is held, older versions too.
   * @param {Record<string, Capacity>} agents
   */
  replace(agents) {
    const before = this.#agents;
    this.#agents = new Map(Object.entries(agents));
    this.#tell([...new Set([...before.keys(), ...this.#agents.keys()])]);
  }

  /**
   * Takes a delta: whole values, each only where its version is newer than the one held.
   * @param {Changes} agents
   */
  apply(agents) {
    this.#tell(Object.entries(agents).filter(([name, value]) => this.#take(name, value)).map(([name]) => name));
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
