// @ts-check
/** Renews the parts of an agent's page (`[data-part]`, each with an id) from the server's own markup. */
import { html } from "../lib/html.js";
import { signedOut } from "../lib/session.js";
import { localise } from "./times.js";

/** Changes closer together than this are fetched as one. */
const GATHER_MS = 150;
/** A busy agent changes many times a second: nobody reads that fast. */
const APART_MS = 1_000;
const RETRY_MS = 2_000;
const LONGEST_RETRY_MS = 30_000;
/** What was spent is added up over many runs, and changes slowly. */
const PAST_EVERY_MS = 30_000;

/** Says `renewed` after each renewal. What stands outside the parts, forms above all, is never touched. */
export class Renewal extends EventTarget {
  /** What each part was made of; what reads the same stays, with all that is open, focused or selected in it. @type {Map<string, string>} */
  #made = new Map();
  #due = false;
  /** @type {number | undefined} */
  #timer;
  /** @type {Promise<void> | null} */
  #running = null;
  #endedAt = -APART_MS;
  #tookMs = 0;
  #pastAt = performance.now();
  #failures = 0;
  #over = false;

  /** @param {string} source where the parts come from @param {HTMLElement} notice where it says why it can't */
  constructor(source, notice) {
    super();
    this.source = source;
    this.notice = notice;
    for (const part of document.querySelectorAll("[data-part]")) this.#made.set(part.id, part.outerHTML);
    // A part isn't taken away from under an open dialog.
    document.addEventListener("close", () => this.#due && this.soon(), { capture: true });
  }

  /** Renews before long: at once after a quiet time, else no more than once a second. */
  soon() {
    if (this.#over) return;
    this.#due = true;
    if (this.#timer !== undefined || this.#running) return;
    const wait = Math.max(GATHER_MS, this.#endedAt + Math.max(APART_MS, 4 * this.#tookMs) - performance.now());
    this.#timer = window.setTimeout(() => void this.now(), wait);
  }

  /** Renews now; done when the page shows it. */
  async now() {
    window.clearTimeout(this.#timer);
    this.#timer = undefined;
    while (this.#running) await this.#running.catch(() => undefined);
    if (this.#over || document.querySelector("dialog[open]")) {
      this.#due = true;
      return;
    }
    this.#due = false;
    this.#running = this.#renew();
    try {
      await this.#running;
    } finally {
      this.#running = null;
    }
    if (this.#due) this.soon();
  }

  async #renew() {
    const from = performance.now();
    const past = from - this.#pastAt > PAST_EVERY_MS;
    const response = await fetch(past ? `${this.source}?past` : this.source, { credentials: "same-origin", redirect: "manual" }).catch(() => null);
    const markup = response?.ok ? await response.text().catch(() => null) : null;
    this.#endedAt = performance.now();
    this.#tookMs = this.#endedAt - from;
    if (markup !== null) {
      if (past) this.#pastAt = from;
      this.#show(markup);
    } else if (response?.type === "opaqueredirect") this.#signOut();
    else if (response?.status === 404) this.#end(html`This agent is gone, or no longer yours to see. <a href="/agents/">To the agents</a>`);
    else this.#retry();
  }

  #signOut() {
    this.#over = true;
    signedOut();
  }

  /** @param {string} markup rendered and escaped by the server */
  #show(markup) {
    this.#failures = 0;
    this.notice.hidden = true;
    const fresh = document.createElement("template");
    fresh.innerHTML = markup;
    for (const part of [...fresh.content.children]) this.#place(part);
    this.dispatchEvent(new CustomEvent("renewed"));
  }

  /** @param {Element} part */
  #place(part) {
    const shown = document.getElementById(part.id);
    const made = part.outerHTML;
    if (!shown || this.#made.get(part.id) === made) return;
    this.#made.set(part.id, made);
    for (const open of shown.querySelectorAll("details[open][id]")) part.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
    const focused = shown.contains(document.activeElement) ? document.activeElement?.id : undefined;
    shown.replaceWith(part);
    localise(part);
    if (focused !== undefined) /** @type {HTMLElement | null} */ (document.getElementById(focused) ?? part.querySelector("[tabindex]"))?.focus({ preventScroll: true });
  }

  #retry() {
    this.#say(html`The page can't be renewed just now; it tries again.`);
    const wait = Math.min(LONGEST_RETRY_MS, RETRY_MS * 2 ** this.#failures++);
    this.#timer = window.setTimeout(() => void this.now(), wait * (0.5 + Math.random() / 2));
  }

  /** @param {ReturnType<typeof html>} text */
  #end(text) {
    this.#over = true;
    this.#say(text);
  }

  /** @param {ReturnType<typeof html>} text */
  #say(text) {
    this.notice.innerHTML = String(text);
    this.notice.hidden = false;
  }
}
