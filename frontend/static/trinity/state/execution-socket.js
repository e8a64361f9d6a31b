// @ts-check
import { Refused, get } from "../lib/api.js";

const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;
const STABLE_MS = 5_000;
const SILENCE_MS = 25_000;
const POLL_SECONDS = 20;
const POLL_PAUSE_MS = 1_000;
/** Codes after which the same request would be refused again. */
const FINAL = new Set([4400, 4401, 4403, 4404]);
const REFUSALS = /** @type {Record<number, number>} */ ({ 401: 4401, 403: 4403, 404: 4404 });
const TERMINAL = new Set(["success", "failed", "cancelled"]);

/**
 * One entry of a run's log.
 * @typedef {{seq: number, type: string, data: Record<string, any>, at: string}} Entry
 */

/**
 * Follows one execution over `/ws/executions/{id}/`: its log from entry `after` on, in order and each entry once.
 *
 * Says `entries` ({entries}), `execution` ({execution}: as it stands now), `end` (nothing more will come) and `status`
 * ({state, code}): connecting, live, polling (no socket; asked over HTTP meanwhile), waiting, paused, refused or ended.
 */
export class ExecutionSocket extends EventTarget {
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {AbortController | null} */
  #polling = null;
  /** @type {Record<"retry" | "stable" | "dead", number | undefined>} */
  #timers = { retry: undefined, stable: undefined, dead: undefined };
  #attempts = 0;
  #running = false;

  /** @param {string} id @param {{after?: number}} [options] */
  constructor(id, { after = 0 } = {}) {
    super();
    this.id = id;
    /** The last entry that was taken. */
    this.after = after;
  }

  start() {
    if (this.#running) return;
    this.#running = true;
    document.addEventListener("visibilitychange", this.#onVisibility);
    window.addEventListener("online", this.#onVisibility);
    window.addEventListener("pagehide", this.#onHide);
    window.addEventListener("pageshow", this.#onVisibility);
    this.#onVisibility();
  }

  stop() {
    this.#running = false;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    window.removeEventListener("online", this.#onVisibility);
    window.removeEventListener("pagehide", this.#onHide);
    window.removeEventListener("pageshow", this.#onVisibility);
    this.#drop();
  }

  #onVisibility = () => {
    if (document.hidden) return this.#onHide();
    if (!this.#socket) this.#connect();
  };

  #onHide = () => {
    this.#drop();
    this.#say("paused");
  };

  #connect() {
    clearTimeout(this.#timers.retry);
    if (!this.#polling) this.#say("connecting");
    const url = new URL(`/ws/executions/${this.id}/`, location.href);
    url.protocol = url.protocol === "http:" ? "ws:" : "wss:";
    url.searchParams.set("after", String(this.after));
    const socket = (this.#socket = new WebSocket(url));
    socket.addEventListener("open", () => {
      this.#timers.stable = window.setTimeout(() => (this.#attempts = 0), STABLE_MS);
      this.#listen();
    });
    socket.addEventListener("message", (event) => this.#socket === socket && this.#take(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => this.#socket === socket && this.#onClose(event.code));
  }

  /** @param {{type: string, entries?: Entry[], execution?: Record<string, any>}} frame */
  #take(frame) {
    this.#listen();
    this.#endPolling();
    this.#say("live");
    if (frame.entries) this.#takeEntries(frame.entries);
    if (frame.execution) this.#tell("execution", { execution: frame.execution });
    if (frame.type === "end") this.#end();
  }

  /** What was shown before is passed over, whichever way it comes again. @param {Entry[]} entries */
  #takeEntries(entries) {
    const fresh = entries.filter((entry) => entry.seq > this.after);
    if (!fresh.length) return;
    this.after = fresh[fresh.length - 1].seq;
    this.#tell("entries", { entries: fresh });
  }

  #end() {
    this.stop();
    this.#say("ended");
    this.#tell("end", {});
  }

  /** @param {number} code */
  #onClose(code) {
    this.#forget();
    if (FINAL.has(code)) return this.#refuse(code);
    if (!this.#polling) this.#say("waiting");
    // The first loss is mended by the next try; who fails again gets on without a socket until one opens.
    if (this.#attempts > 0 && !this.#polling) this.#poll();
    this.#timers.retry = window.setTimeout(() => this.#connect(), this.#delay());
  }

  /** @param {number} code */
  #refuse(code) {
    this.stop();
    this.#say("refused", code);
  }

  // -- Without a socket
  async #poll() {
    const mine = (this.#polling = new AbortController());
    while (!mine.signal.aborted) {
      try {
        await this.#ask(mine.signal);
        if (!mine.signal.aborted) this.#say("polling");
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (!mine.signal.aborted && REFUSALS[error.status]) return this.#refuse(REFUSALS[error.status]);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_PAUSE_MS));
    }
  }

  /** @param {AbortSignal} signal */
  async #ask(signal) {
    const path = `/api/executions/${this.id}/`;
    // Asked first: where it has ended, its log is whole.
    const execution = await get(path);
    if (signal.aborted) return;
    const ended = TERMINAL.has(execution.status);
    let page;
    do {
      page = await get(`${path}events/?after=${this.after}&wait=${ended ? 0 : POLL_SECONDS}`);
      if (signal.aborted) return;
      this.#takeEntries(page.results);
    } while (page.next);
    this.#tell("execution", { execution });
    if (ended) this.#end();
  }

  #endPolling() {
    this.#polling?.abort();
    this.#polling = null;
  }

  /** Full jitter: browsers that lost one server together must not come back together. */
  #delay() {
    return Math.random() * Math.min(LONGEST_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#attempts++);
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
    const socket = this.#socket;
    this.#endPolling();
    this.#forget();
    socket?.close(1000);
  }

  #forget() {
    this.#socket = null;
    for (const timer of /** @type {const} */ (["stable", "retry", "dead"])) clearTimeout(this.#timers[timer]);
  }

  /** @param {string} state @param {number} [code] */
  #say(state, code) {
    this.#tell("status", { state, code });
  }

  /** @param {string} type @param {object} detail */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
