// @ts-check
/** @typedef {import("./store.js").CapacityStore} CapacityStore */

const EVERY_MS = 5_000;
/** A server that restarts loses all its browsers at once: most are back on their sockets before they would ask here. */
const FIRST_MS = 1_000;
const ANSWER_MS = 10_000;

/**
 * Keeps a store in step by asking `GET /api/agents/slots` every five seconds, for while no socket can be had.
 *
 * Says `answer` with `{state}`: `fresh` (the store is as the server has it), `unknown` (the server can't tell), `signed-out`
 * (the credential counts for nothing) or `none` (no answer that says anything).
 */
export class CapacityPolling extends EventTarget {
  #timer = 0;
  #running = false;
  /** Of the last whole answer. */
  #tag = "";
  /** @type {AbortController | null} */
  #asking = null;

  /**
   * @param {CapacityStore} store
   * @param {{base?: string | URL, agents?: string[], token?: () => (string | null | Promise<string | null>), shown?: () => string[]}} [options]
   *   `base`: the server, else the page's own; `agents` narrows; `token` gives a bearer token, else the page's session counts;
   *   `shown` names who becomes unknown with those in the store.
   */
  constructor(store, options = {}) {
    super();
    this.store = store;
    this.options = options;
  }

  /**
   * Begins, unless it has.
   * @param {boolean} [atOnce] without the wait before the first time
   */
  start(atOnce = false) {
    if (this.#running) return;
    this.#running = true;
    this.#tag = "";
    this.#later(atOnce ? 0 : FIRST_MS * (1 + Math.random()));
  }

  /** Ends; an answer that is under way counts for nothing. */
  stop() {
    this.#running = false;
    clearTimeout(this.#timer);
    this.#asking?.abort();
    this.#asking = null;
  }

  /** @param {number} delay */
  #later(delay) {
    this.#timer = window.setTimeout(() => this.#ask(), delay);
  }

  async #ask() {
    const asking = (this.#asking = new AbortController());
    const answered = window.setTimeout(() => asking.abort(), ANSWER_MS);
    const began = Date.now();
    const state = await this.#answer(asking.signal).catch(() => "none");
    clearTimeout(answered);
    if (this.#asking !== asking) return;
    this.#later(Math.max(0, began + EVERY_MS - Date.now()));
    this.dispatchEvent(new CustomEvent("answer", { detail: { state } }));
  }

  /** @param {AbortSignal} signal @returns {Promise<string>} */
  async #answer(signal) {
    const token = this.options.token ? await this.options.token() : undefined;
    if (token === null) return "signed-out";
    const response = await fetch(new URL("/api/agents/slots", this.options.base ?? location.href), {
      headers: { Accept: "application/json", ...(token && { Authorization: `Bearer ${token}` }), ...(this.#tag && { "If-None-Match": this.#tag }) },
      credentials: token ? "omit" : "same-origin",
      // The tag is ours to send: the browser's own cache would hide a 304.
      cache: "no-store",
      signal,
    });
    if (response.status === 304) return "fresh";
    this.#tag = "";
    if (response.ok) return this.#take(response, signal);
    if (response.status === 503) return this.#unknow();
    return response.status === 401 && !this.options.token ? "signed-out" : "none";
  }

  /** @param {Response} response @param {AbortSignal} signal */
  async #take(response, signal) {
    const { agents } = await response.json();
    signal.throwIfAborted();
    this.store.merge(this.#narrowed(agents));
    this.#tag = response.headers.get("ETag") ?? "";
    return "fresh";
  }

  #unknow() {
    this.store.unknow(this.options.shown?.() ?? []);
    return "unknown";
  }

  /** @param {Record<string, import("./store.js").Capacity>} agents */
  #narrowed(agents) {
    const wanted = this.options.agents;
    return wanted?.length ? Object.fromEntries(Object.entries(agents).filter(([name]) => wanted.includes(name))) : agents;
  }
}
