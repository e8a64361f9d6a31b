// @ts-check
import { CapacityPolling } from "./polling.js";

/** @typedef {import("./store.js").CapacityStore} CapacityStore */

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;
const STABLE_MS = 5_000;
const SILENCE_MS = 25_000;
/** Codes after which the same request would be refused again. */
const FINAL = new Set([4401, 4403, 4404]);

/**
 * Keeps a store in step with `/ws/capacity/`, and by polling while that can't be reached.
 *
 * Says `status` with `{state}`: connecting, live, waiting (another try is due), polling (the same, but the values are kept
 * fresh meanwhile), refused (with `code`: no further try) or paused (the tab is hidden).
 */
export class CapacitySocket extends EventTarget {
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {Record<"retry" | "stable" | "stale" | "dead", number | undefined>} */
  #timers = { retry: undefined, stable: undefined, stale: undefined, dead: undefined };
  /** Which attempt to connect is under way; a later one makes the former void. */
  #attempt = Symbol("none");
  #attempts = 0;
  #running = false;
  #heardAt = Date.now();
  #polling;
  /** Whether the values came by polling last. */
  #polled = false;

  /**
   * @param {CapacityStore} store
   * @param {{base?: string | URL, agents?: string[], ticket?: () => (string | null | Promise<string | null>),
   *   token?: () => (string | null | Promise<string | null>), shown?: () => string[]}} [options]
   *   `base`: the server, else the page's own; `agents` narrows; `ticket` is asked at each connection, null stops trying;
   *   `token` gives the bearer token to poll with, where the page's own session doesn't count: a ticket opens one socket and
   *   nothing else, so with a ticket alone nothing is polled; `shown` names the agents on the screen.
   */
  constructor(store, options = {}) {
    super();
    this.store = store;
    this.options = options;
    this.#polling = options.ticket && !options.token ? null : new CapacityPolling(store, options);
    this.#polling?.addEventListener("answer", (event) => this.#onAnswer(/** @type {CustomEvent} */ (event).detail.state));
  }

  start() {
    if (this.#running) return;
    this.#running = true;
    document.addEventListener("visibilitychange", this.#onVisibility);
    window.addEventListener("online", this.#onOnline);
    window.addEventListener("pagehide", this.#onHide);
    window.addEventListener("pageshow", this.#onVisibility);
    this.#onVisibility();
  }

  stop() {
    this.#running = false;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    window.removeEventListener("online", this.#onOnline);
    window.removeEventListener("pagehide", this.#onHide);
    window.removeEventListener("pageshow", this.#onVisibility);
    this.#drop();
  }

  /** Asks for a snapshot on the open socket. */
  resync() {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify({ type: "resync" }));
  }

  #onVisibility = () => {
    if (document.hidden) return this.#onHide();
    if (this.#socket) return;
    this.#watch();
    this.#polling?.start(this.#polled);
    this.#connect();
  };

  #onHide = () => {
    this.#drop();
    this.#say("paused");
  };

  #onOnline = () => {
    if (!document.hidden && !this.#socket) this.#connect();
  };

  async #connect() {
    clearTimeout(this.#timers.retry);
    // Getting a ticket takes a while: whoever asked last opens the socket.
    const mine = (this.#attempt = Symbol("attempt"));
    this.#say("connecting");
    const url = await this.#url().catch(() => undefined);
    if (mine !== this.#attempt || !this.#running || document.hidden) return;
    if (url === undefined) return this.#onClose(0);
    if (url === null) return this.options.token ? this.#wait() : this.#refuse(4401);
    this.#open(new WebSocket(url));
  }

  /** @returns {Promise<URL | null>} null: no ticket is left */
  async #url() {
    const url = new URL("/ws/capacity/", this.options.base ?? location.href);
    url.protocol = url.protocol === "http:" || url.protocol === "ws:" ? "ws:" : "wss:";
    for (const name of this.options.agents ?? []) url.searchParams.append("agent", name);
    if (this.options.ticket) {
      const ticket = await this.options.ticket();
      if (ticket === null) return null;
      url.searchParams.set("ticket", ticket);
    }
    return url;
  }

  /** @param {WebSocket} socket */
  #open(socket) {
    this.#socket = socket;
    socket.addEventListener("open", () => {
      this.#timers.stable = window.setTimeout(() => (this.#attempts = 0), STABLE_MS);
      this.#listen();
    });
    socket.addEventListener("message", (event) => this.#socket === socket && this.#take(event.data));
    socket.addEventListener("close", (event) => this.#socket === socket && this.#onClose(event.code));
  }

  /** @param {string} text */
  #take(text) {
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return this.resync();
    }
    this.#hear();
    this.#listen();
    if (frame.type === "snapshot") {
      this.#polling?.stop();
      this.#polled = false;
      this.store.replace(frame.agents);
      this.#say("live");
    } else if (frame.type === "delta") this.store.apply(frame.agents);
    this.store.touch();
  }

  /** @param {"fresh" | "unknown" | "signed-out" | "none"} answer */
  #onAnswer(answer) {
    if (answer === "signed-out") return this.#refuse(4401);
    this.#polled = answer !== "none";
    if (!this.#polled) return;
    this.#hear();
    this.store.touch();
    this.#say("polling");
  }

  /** @param {number} code */
  #onClose(code) {
    this.#forget();
    const final = FINAL.has(code) && !(code === 4401 && this.options.ticket);
    if (final) return this.#refuse(code);
    this.#wait();
    this.#timers.retry = window.setTimeout(() => this.#connect(), this.#delay());
  }

  #wait() {
    this.#polling?.start();
    this.#say(this.#polled ? "polling" : "waiting");
  }

  /** Gives up: whoever asks the same again is told the same. @param {number} code */
  #refuse(code) {
    this.#attempt = Symbol("refused");
    const socket = this.#socket;
    this.#polling?.stop();
    this.#polled = false;
    this.#forget();
    socket?.close(1000);
    this.#say("refused", code);
  }

  /** Full jitter: browsers that lost one server together must not come back together. */
  #delay() {
    const longest = Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#attempts++);
    return Math.random() * longest;
  }

  #hear() {
    this.#heardAt = Date.now();
    this.#watch();
  }

  /** Starts the time after which what is shown is old. */
  #watch() {
    clearTimeout(this.#timers.stale);
    const left = Math.max(0, this.#heardAt + SILENCE_MS - Date.now());
    this.#timers.stale = window.setTimeout(() => (this.store.stale = true), left);
  }

  /** Starts the time after which an open socket that says nothing counts as dead at its other end. */
  #listen() {
    clearTimeout(this.#timers.dead);
    this.#timers.dead = window.setTimeout(() => {
      this.#socket?.close(4000);
      this.#onClose(4000);
    }, SILENCE_MS);
  }

  #drop() {
    this.#attempt = Symbol("none");
    const socket = this.#socket;
    clearTimeout(this.#timers.stale);
    this.#polling?.stop();
    this.#forget();
    socket?.close(1000);
  }

  #forget() {
    this.#socket = null;
    for (const timer of /** @type {const} */ (["stable", "retry", "dead"])) clearTimeout(this.#timers[timer]);
  }

  /** @param {string} state @param {number} [code] */
  #say(state, code) {
    this.dispatchEvent(new CustomEvent("status", { detail: { state, code } }));
  }
}
