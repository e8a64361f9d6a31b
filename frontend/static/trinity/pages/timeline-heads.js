// @ts-check
/** The agents' heads: name, meter and figures; only those in view are in the page. */
import { element, html } from "../lib/html.js";
import { timeOfDay } from "./timeline-axis.js";
/** @typedef {import("./timeline-layout.js").Block} Block */
/** @typedef {import("./timeline-data.js").History} History */
/** @typedef {import("../state/store.js").CapacityStore} CapacityStore */
/** @typedef {import("../elements/capacity-meter.js").CapacityMeter} CapacityMeter */

export class Heads {
  /** @type {Map<string, HTMLElement>} */
  #shown = new Map();
  /** The moment pointed at; null: live. @type {number | null} */
  #at = null;

  /** @param {HTMLElement} element @param {History} history @param {CapacityStore} store */
  constructor(element, history, store) {
    this.element = element;
    this.history = history;
    this.store = store;
  }

  /** @param {Block[]} blocks */
  place(blocks) {
    const names = new Set(blocks.map((block) => block.name));
    for (const [name, head] of this.#shown) {
      // What has the focus stays, wherever it is.
      if (names.has(name) || head.contains(document.activeElement)) continue;
      head.remove();
      this.#shown.delete(name);
    }
    for (const block of blocks) {
      const head = this.#shown.get(block.name) ?? this.#make(block);
      head.style.transform = `translateY(${block.top}px)`;
      head.style.blockSize = `${block.height}px`;
    }
  }

  /** Shows the meters as they were at a moment, or live. @param {number | null} at */
  tell(at) {
    if (at === null && this.#at === null) return;
    this.#at = at;
    for (const [name, head] of this.#shown) this.#fill(name, head, false);
  }

  /** The store knows more. */
  renew() {
    for (const [name, head] of this.#shown) this.#fill(name, head, true);
  }

  /** @param {Block} block */
  #make({ name }) {
    const head = /** @type {HTMLElement} */ (
      element(html`<div class="timeline__head" role="listitem">
        <capacity-meter agent="${name}" height="52" width="6" max="1"></capacity-meter>
        <div class="timeline__who">
          <a class="timeline__name" href="/agents/${encodeURIComponent(name)}/" title="${name}">${name}</a>
          <span class="timeline__figures"></span>
        </div>
      </div>`)
    );
    this.#shown.set(name, head);
    const before = [...this.#shown.keys()].filter((other) => other > name).sort()[0];
    this.element.insertBefore(head, before === undefined ? null : (this.#shown.get(before) ?? null));
    this.#fill(name, head, true);
    return head;
  }

  /** @param {string} name @param {HTMLElement} head @param {boolean} anew */
  #fill(name, head, anew) {
    const meter = /** @type {CapacityMeter} */ (head.querySelector("capacity-meter"));
    const figures = /** @type {HTMLElement} */ (head.querySelector(".timeline__figures"));
    const live = this.store.get(name);
    const then = this.#at === null ? null : this.#then(name, this.#at);
    head.toggleAttribute("data-then", then !== null);
    const limit = live?.max ?? 1;
    const words = then ? wordsThen(then, limit, /** @type {number} */ (this.#at)) : wordsNow(live);
    // Where the words are the same the meter is, unless the page's socket has just filled it.
    if (!anew && figures.textContent === words) return;
    if (then) meter.show({ active: then.ran, max: limit, queued: then.waited, paused: false });
    else meter.show(live ?? { active: null, max: limit, queued: 0 });
    figures.textContent = words;
  }

  /** @param {string} name @param {number} at */
  #then(name, at) {
    // Beyond now there is nothing to tell, and nothing of what isn't known.
    if (at > this.history.now || this.history.gaps(at - 1, at).length) return null;
    return this.history.lanesOf(name)?.countsAt(at) ?? { ran: 0, waited: 0 };
  }
}

/** @param {import("../state/store.js").Capacity | undefined} live */
function wordsNow(live) {
  if (!live) return "";
  if (live.active === null) return "load unknown";
  return `${live.active}/${live.max}${live.queued ? `, ${live.queued} waiting` : ""}${live.paused ? ", paused" : ""}`;
}

/** @param {{ran: number, waited: number}} then @param {number} limit @param {number} at */
function wordsThen({ ran, waited }, limit, at) {
  return `${ran} at ${timeOfDay(at)}${waited ? `, ${waited} waiting` : ""} (limit ${limit} now)`;
}
