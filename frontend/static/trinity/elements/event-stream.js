// @ts-check
import { element, html } from "../lib/html.js";

/** @typedef {import("../state/execution-socket.js").Entry} Entry */

/** The oldest nodes beyond go: a page must not grow with a run. */
const MOST_NODES = 2_000;
const LONG_CHARACTERS = 2_000;
/** So near the end counts as being there. */
const NEAR_PX = 24;
const WORDS = /** @type {Record<string, string>} */ ({
  text: "", text_delta: "", message: "", progress: "", tool_use: "Tool", tool_call: "Tool", tool_result: "Result", error: "Error",
  status: "Status", repair: "Put right", truncated: "Cut", log: "Log",
});
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** A run's log as it grows: it follows the end until the reader scrolls up. */
export class EventStream extends HTMLElement {
  #list = /** @type {HTMLOListElement} */ (element(html`<ol class="events__list"></ol>`));
  #empty = /** @type {HTMLElement} */ (element(html`<p class="quiet events__empty"></p>`));
  #dropped = /** @type {HTMLElement} */ (element(html`<p class="quiet events__dropped" hidden></p>`));
  #jump = /** @type {HTMLButtonElement} */ (element(html`<button class="button button--quiet events__jump" type="button" hidden>Jump to the end</button>`));
  #scroller = /** @type {HTMLElement} */ (element(html`<div class="events__scroll" role="group" aria-label="Events" tabindex="0"></div>`));
  #count = 0;
  #following = true;
  /** @type {HTMLElement | null} Where deltas of one message go on. */
  #open = null;

  connectedCallback() {
    if (this.#scroller.isConnected) return;
    this.classList.add("events");
    this.#scroller.replaceChildren(this.#dropped, this.#empty, this.#list);
    this.replaceChildren(this.#scroller, this.#jump);
    this.#scroller.addEventListener("scroll", () => this.#look(), { passive: true });
    this.#jump.addEventListener("click", () => {
      this.#following = true;
      this.#toEnd();
      this.#scroller.focus({ preventScroll: true });
    });
  }

  /** What stands there while there is no entry. @param {string} text */
  set placeholder(text) {
    this.#empty.textContent = text;
  }

  /** @param {Entry[]} entries */
  add(entries) {
    const nodes = document.createDocumentFragment();
    for (const entry of entries) {
      this.#count += 1;
      if (!this.#goesOn(entry)) nodes.append((this.#open = row(entry)));
    }
    this.#list.append(nodes);
    this.#empty.hidden = this.#count > 0;
    this.#trim();
    if (this.#following) this.#toEnd();
    else this.#jump.hidden = false;
  }

  /** Adds a delta to the text before it, if that is what it goes on with. @param {Entry} entry */
  #goesOn({ type, data }) {
    const body = type === "text_delta" && this.#open?.dataset.type === "text_delta" ? this.#open.querySelector(".event__text") : null;
    if (!body || body.textContent.length > LONG_CHARACTERS) return false;
    body.append(textOf(data) ?? "");
    return true;
  }

  #trim() {
    while (this.#list.childElementCount > MOST_NODES) this.#list.firstElementChild?.remove();
    const dropped = this.#count > MOST_NODES && this.#list.childElementCount === MOST_NODES;
    this.#dropped.hidden = !dropped;
    if (dropped) this.#dropped.textContent = `Only the last ${MOST_NODES} of ${this.#count} entries are shown; the API has them all.`;
  }

  #look() {
    const { scrollTop, clientHeight, scrollHeight } = this.#scroller;
    this.#following = scrollTop + clientHeight >= scrollHeight - NEAR_PX;
    if (this.#following) this.#jump.hidden = true;
  }

  #toEnd() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#jump.hidden = true;
  }
}

/** @param {Entry} entry */
function row({ seq, type, data, at }) {
  const time = new Date(at);
  const label = WORDS[type] ?? type;
  return /** @type {HTMLElement} */ (
    element(html`<li class="event" data-type="${type}" data-seq="${seq}">
      <time class="event__at" datetime="${at}" title="${at}, entry ${seq}">${clock.format(time)}</time>
      <div class="event__body">${label && html`<span class="event__label">${label}</span>`}${bodyOf(type, data)}</div>
    </li>`)
  );
}

/** @param {string} type @param {Record<string, any>} data */
function bodyOf(type, data) {
  const text = textOf(data);
  if (text !== undefined && Object.keys(data).every((key) => typeof data[key] !== "object")) return textBody(text);
  const name = typeof data.name === "string" ? data.name : typeof data.tool === "string" ? data.tool : typeof data.kind === "string" ? data.kind : "";
  const whole = JSON.stringify(data, null, 2);
  if (text !== undefined) return html`${textBody(text)}${folded("details", whole)}`;
  if (whole === "{}") return "";
  return whole.length < 120 && !name ? html`<code class="event__code" dir="auto">${JSON.stringify(data)}</code>` : folded(name || `${whole.length} characters`, whole);
}

/** @param {string} text */
function textBody(text) {
  if (text.length <= LONG_CHARACTERS) return html`<span class="event__text" dir="auto">${text}</span>`;
  return html`<span class="event__text" dir="auto">${text.slice(0, 300)}…</span>${folded(`all ${text.length} characters`, text)}`;
}

/** @param {string} summary @param {string} text */
function folded(summary, text) {
  return html`<details class="event__more"><summary>${summary}</summary><pre class="output" dir="auto" tabindex="0">${text}</pre></details>`;
}

/** @param {Record<string, any>} data @returns {string | undefined} */
function textOf(data) {
  for (const key of ["text", "delta", "message", "content"]) if (typeof data[key] === "string") return data[key];
  return undefined;
}

customElements.define("event-stream", EventStream);
