// @ts-check
/**
 * `<capacity-meter>`: an agent's slots as a vertical bar of cells, filled from the bottom.
 *
 * Shows its attributes (`agent active max queued paused stale as-of version height width count`, each also a
 * property), or with `src` keeps itself up to date. `docs/meter.md` describes it for other pages.
 */
import { CapacitySocket } from "../state/socket.js";
import { CapacityStore } from "../state/store.js";

/** More cells than this would be thinner than a pixel; a larger `max` is drawn in proportion. */
const MOST_CELLS = 64;
/** What a followed agent shows before its first values. */
const LIMIT_OF_A_NEW_AGENT = 3;
const STATES = ["full", "over", "paused", "stale", "unknown"];

const STYLE = `
:host {
  --_empty: var(--capacity-meter-empty, #e5e7eb);
  --_outline: var(--capacity-meter-outline, #85898f);
  --_low: var(--capacity-meter-low, #15803d);
  --_medium: var(--capacity-meter-medium, #927400);
  --_high: var(--capacity-meter-high, #c2410c);
  --_full: var(--capacity-meter-full, #b91c1c);
  --_hatch: var(--capacity-meter-hatch, #ffffff);
  display: inline-flex;
  align-items: flex-start;
  gap: var(--capacity-meter-text-gap, 0.5em);
  vertical-align: middle;
}
:host([hidden]) { display: none; }
@supports (color: light-dark(red, red)) {
  :host {
    --_empty: var(--capacity-meter-empty, light-dark(#e5e7eb, #2b313b));
    --_outline: var(--capacity-meter-outline, light-dark(#85898f, #767d8a));
    --_low: var(--capacity-meter-low, light-dark(#15803d, #4ade80));
    --_medium: var(--capacity-meter-medium, light-dark(#927400, #fde047));
    --_high: var(--capacity-meter-high, light-dark(#c2410c, #fb923c));
    --_full: var(--capacity-meter-full, light-dark(#b91c1c, #f87171));
    --_hatch: var(--capacity-meter-hatch, light-dark(#ffffff, #14171c));
  }
}
:host([height="0"]) { align-self: stretch; align-items: stretch; }
.bar {
  --_fill: var(--_empty);
  position: relative;
  flex: none;
  display: flex;
  flex-direction: column-reverse;
  gap: var(--capacity-meter-gap, 1px);
  inline-size: var(--capacity-meter-width, var(--_width));
  block-size: var(--capacity-meter-height, var(--_height));
  min-block-size: 12px;
}
:host([height="0"]) .bar { block-size: auto; }
.bar[data-level=low] { --_fill: var(--_low); }
.bar[data-level=medium] { --_fill: var(--_medium); }
.bar[data-level=high] { --_fill: var(--_high); }
.bar[data-level=full] { --_fill: var(--_full); }
.cell {
  flex: 1;
  min-block-size: 0;
  box-sizing: border-box;
  border: 1px solid var(--_outline);
  border-radius: var(--capacity-meter-radius, 2px);
  background-color: var(--_empty);
  transition: background-color 300ms, border-color 300ms;
}
.cell[data-filled] { background-color: var(--_fill); border-color: var(--_fill); }
.bar[data-dense=very] { gap: 0; }
.bar[data-dense] .cell { border-block-width: 0; border-radius: 0; }
.bar[data-level=full] .cell[data-filled] { animation: capacity-pulse 1.2s ease-in-out infinite; }
.bar[data-unknown] .cell { background-color: transparent; border-style: dashed; }
.bar[data-stale] .cell[data-filled] { animation: none; }
.bar[data-stale]::after {
  content: "";
  position: absolute;
  inset: 0;
  background: repeating-linear-gradient(45deg, transparent 0 2px, var(--_hatch) 2px 4px);
}
@keyframes capacity-pulse { 50% { opacity: 0.5; } }
.text {
  display: grid;
  font: var(--capacity-meter-font, inherit);
  font-variant-numeric: tabular-nums;
  line-height: 1.25;
  white-space: nowrap;
}
.text:empty { display: none; }
.count { font-weight: 600; }
@media (prefers-reduced-motion: reduce) {
  .cell { transition: none; }
  .bar[data-level=full] .cell[data-filled] { animation: none; }
}
@media (forced-colors: active) {
  .bar { forced-color-adjust: none; }
  .cell { background-color: Canvas; border-color: CanvasText; }
  .cell[data-filled] { background-color: Highlight; border-color: Highlight; }
  .bar[data-unknown] .cell { border-color: GrayText; }
  .bar[data-stale]::after { background: repeating-linear-gradient(45deg, transparent 0 2px, CanvasText 2px 3px); }
}
`;

/** @type {CSSStyleSheet | undefined} */
let sheet;

/** One sheet for all meters of a page: constructed, so a strict `style-src` lets it through. */
function sharedSheet() {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
  }
  return sheet;
}

/**
 * A whole number ≥ `least` out of anything; `otherwise` where there is none in it.
 * @param {unknown} value @param {number} otherwise @param {number} [least]
 */
function whole(value, otherwise, least = 0) {
  if (value === null || value === undefined || typeof value === "symbol" || String(value).trim() === "") return otherwise;
  const number = Number(value);
  return Number.isFinite(number) ? Math.max(least, Math.trunc(number)) : otherwise;
}

/** @param {number} active @param {number} max */
function levelOf(active, max) {
  const used = Math.min(active, max) / max;
  if (used === 0) return "idle";
  if (used < 0.5) return "low";
  if (used < 0.8) return "medium";
  return used < 1 ? "high" : "full";
}

/** The time of day of an ISO text, in the reader's own zone; "" where it is none. @param {string | null} text */
function timeOfDay(text) {
  const at = new Date(text ?? Number.NaN);
  return Number.isNaN(at.getTime()) ? "" : [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

export class CapacityMeter extends HTMLElement {
  static observedAttributes = ["active", "max", "height", "width", "agent", "queued", "paused", "stale", "as-of", "version", "count", "src"];

  #internals = this.attachInternals();
  #bar = document.createElement("div");
  #text = document.createElement("div");
  /** @type {CapacitySocket | null} */
  #socket = null;
  /** @type {unknown} */
  #ticket;
  /** Whether the name is ours to change. */
  #named = false;
  #valuesAt = new Date().toISOString();
  #told = "";
  #telling = false;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sharedSheet()];
    this.#bar.className = "bar";
    this.#bar.setAttribute("part", "bar");
    this.#text.className = "text";
    this.#text.setAttribute("part", "text");
    // The host is the meter for a screen reader and says all of this in its value text.
    this.#text.setAttribute("aria-hidden", "true");
    root.append(this.#bar, this.#text);
  }

  connectedCallback() {
    for (const name of ["active", "max", "height", "width", "agent", "queued", "paused", "stale", "asOf", "version", "count", "src", "ticket"]) this.#upgrade(name);
    this.#told = this.#signature();
    this.#render();
    this.#follow();
  }

  disconnectedCallback() {
    this.#socket?.stop();
    this.#socket = null;
  }

  /** @param {string} name @param {string | null} before @param {string | null} after */
  attributeChangedCallback(name, before, after) {
    if (!this.isConnected || before === after) return;
    if (name === "active" || name === "max" || name === "queued") this.#valuesAt = new Date().toISOString();
    this.#render();
    this.#tellSoon();
    if (name === "src" || name === "agent") this.#follow();
  }

  /** Slots in use; null: nobody knows (attribute `active="unknown"`). @returns {number | null} */
  get active() {
    return this.getAttribute("active") === "unknown" ? null : whole(this.getAttribute("active"), 0);
  }
  set active(value) {
    this.#write("active", value === null ? "unknown" : whole(value, 0));
  }

  get max() {
    return whole(this.getAttribute("max"), 1, 1);
  }
  set max(value) {
    this.#write("max", whole(value, 1, 1));
  }

  get height() {
    return whole(this.getAttribute("height"), 36);
  }
  set height(value) {
    this.#write("height", whole(value, 36));
  }

  get width() {
    return whole(this.getAttribute("width"), 12, 1);
  }
  set width(value) {
    this.#write("width", whole(value, 12, 1));
  }

  get queued() {
    return whole(this.getAttribute("queued"), 0);
  }
  set queued(value) {
    this.#write("queued", whole(value, 0));
  }

  get version() {
    return whole(this.getAttribute("version"), 0);
  }
  set version(value) {
    this.#write("version", whole(value, 0));
  }

  get agent() {
    return this.getAttribute("agent") ?? "";
  }
  set agent(value) {
    this.#write("agent", value ?? "");
  }

  get paused() {
    return this.hasAttribute("paused");
  }
  set paused(value) {
    this.toggleAttribute("paused", Boolean(value));
  }

  get stale() {
    return this.hasAttribute("stale");
  }
  set stale(value) {
    this.toggleAttribute("stale", Boolean(value));
  }

  /** When the values were last known to be true; without it, when they were set. @returns {string} ISO 8601 */
  get asOf() {
    return this.getAttribute("as-of") ?? this.#valuesAt;
  }
  set asOf(value) {
    this.#write("as-of", /** @type {any} */ (value) instanceof Date ? /** @type {any} */ (value).toISOString() : (value ?? ""));
  }

  /** Whether `3/5` is written beside the bar. */
  get count() {
    return this.hasAttribute("count");
  }
  set count(value) {
    this.toggleAttribute("count", Boolean(value));
  }

  get src() {
    return this.getAttribute("src") ?? "";
  }
  set src(value) {
    this.#write("src", value ?? "");
  }

  /** A single-use ticket, or a function that gets one for each connection. Never an attribute: markup is not a place for it. */
  get ticket() {
    return this.#ticket;
  }
  set ticket(value) {
    this.#ticket = value;
    if (this.isConnected) this.#follow();
  }

  /**
   * Takes over an agent's whole capacity as the server sends it.
   * @param {Partial<import("../state/store.js").Capacity> | null | undefined} capacity
   */
  show(capacity) {
    if (typeof capacity !== "object" || capacity === null) return;
    if ("max" in capacity) this.max = whole(capacity.max, 1, 1);
    if ("active" in capacity) this.active = capacity.active ?? null;
    if ("queued" in capacity) this.queued = whole(capacity.queued, 0);
    if ("paused" in capacity) this.paused = Boolean(capacity.paused);
    if ("version" in capacity) this.version = whole(capacity.version, 0);
  }

  /** A property set before the class was known hides its accessor: set it again. @param {string} name */
  #upgrade(name) {
    if (!Object.prototype.hasOwnProperty.call(this, name)) return;
    const self = /** @type {any} */ (this);
    const value = self[name];
    delete self[name];
    self[name] = value;
  }

  /** @param {string} name @param {unknown} value */
  #write(name, value) {
    const text = typeof value === "symbol" ? "" : String(value);
    if (this.getAttribute(name) !== text) this.setAttribute(name, text);
  }

  #render() {
    const { active, max, paused, stale } = this;
    const unknown = active === null;
    this.#drawCells(unknown ? 0 : Math.min(active, max), max);
    this.#bar.dataset.level = unknown ? "unknown" : levelOf(active, max);
    this.#bar.toggleAttribute("data-unknown", unknown);
    this.#bar.toggleAttribute("data-stale", stale);
    this.#bar.style.setProperty("--_width", `${this.width}px`);
    this.#bar.style.setProperty("--_height", `${this.height}px`);
    this.#writeLines(this.#lines());
    this.#describe();
    const on = { full: !unknown && active >= max, over: !unknown && active > max, paused, stale, unknown };
    for (const state of STATES) this.#setState(state, on[/** @type {keyof on} */ (state)]);
  }

  /** @param {number} filled @param {number} max */
  #drawCells(filled, max) {
    const count = Math.min(max, MOST_CELLS);
    // In proportion where not every slot has a cell; one taken slot still shows, one free slot too.
    const lit = count === max ? filled : filled === 0 ? 0 : filled === max ? count : Math.min(count - 1, Math.max(1, Math.round((filled / max) * count)));
    while (this.#bar.childElementCount > count) this.#bar.lastElementChild?.remove();
    while (this.#bar.childElementCount < count) this.#bar.append(Object.assign(document.createElement("div"), { className: "cell" }));
    [...this.#bar.children].forEach((cell, index) => {
      cell.toggleAttribute("data-filled", index < lit);
      cell.setAttribute("part", index < lit ? "cell filled" : "cell");
    });
    this.#bar.toggleAttribute("data-dense", count * 4 > this.height && this.height > 0);
    if (count * 2 > this.height && this.height > 0) this.#bar.dataset.dense = "very";
  }

  /** What stands beside the bar. @returns {[string, string][]} part and text */
  #lines() {
    const { active, max, queued } = this;
    /** @type {[string, string][]} */
    const lines = [];
    if (active === null) lines.push(["count", "unknown"]);
    else if (active > max) lines.push(["count", `${active} of ${max}, over limit`]);
    else if (this.count) lines.push(["count", `${active}/${max}`]);
    if (queued > 0) lines.push(["waiting", `+${queued} waiting`]);
    if (this.paused) lines.push(["paused", "paused"]);
    if (this.stale) lines.push(["as-of", this.#asOfText()]);
    return lines;
  }

  #asOfText() {
    const time = timeOfDay(this.asOf);
    return time ? `as of ${time}` : "out of date";
  }

  /** @param {[string, string][]} lines */
  #writeLines(lines) {
    this.#text.replaceChildren(
      ...lines.map(([part, text]) => {
        const line = document.createElement("span");
        line.className = part;
        line.setAttribute("part", part);
        line.textContent = text;
        return line;
      }),
    );
  }

  #describe() {
    const { active, max } = this;
    this.title = active === null ? "slots unknown" : `${active}/${max} slots`;
    if (active === null) return this.#describeUnknown();
    this.setAttribute("role", "meter");
    this.setAttribute("aria-valuemin", "0");
    this.setAttribute("aria-valuemax", String(max));
    this.setAttribute("aria-valuenow", String(Math.min(active, max)));
    this.setAttribute("aria-valuetext", this.#sentence(`${active} of ${max} slots in use`));
    this.removeAttribute("aria-description");
    this.#name(this.agent ? `${this.agent} slots` : "Slots");
  }

  /** A meter must have a value; what has none is a picture of not knowing. */
  #describeUnknown() {
    this.setAttribute("role", "img");
    for (const name of ["valuemin", "valuemax", "valuenow", "valuetext"]) this.removeAttribute(`aria-${name}`);
    const sentence = this.#sentence("slots in use unknown");
    this.setAttribute("aria-description", sentence);
    this.#name(this.agent ? `${this.agent}: ${sentence}` : sentence);
  }

  /** Names the meter, unless its page did. @param {string} text */
  #name(text) {
    if (!this.#named && (this.hasAttribute("aria-label") || this.hasAttribute("aria-labelledby"))) return;
    this.#named = true;
    this.setAttribute("aria-label", text);
  }

  /** @param {string} start */
  #sentence(start) {
    const { active, max, queued } = this;
    const parts = [start];
    if (active !== null && active > max) parts.push("over limit");
    if (queued > 0) parts.push(`${queued} waiting`);
    if (this.paused) parts.push("paused");
    if (this.stale) parts.push(this.#asOfText());
    return parts.join(", ");
  }

  /** @param {string} state @param {boolean} on */
  #setState(state, on) {
    try {
      this.#internals.states[on ? "add" : "delete"](state);
    } catch {
      // An older browser wants dashes in front of a state's name: there the parts and attributes have to do.
    }
  }

  #signature() {
    return JSON.stringify([this.agent, this.active, this.max, this.queued, this.paused]);
  }

  /** One event for all attributes that change in one go. */
  #tellSoon() {
    if (this.#telling) return;
    this.#telling = true;
    queueMicrotask(() => {
      this.#telling = false;
      const now = this.#signature();
      if (now === this.#told) return;
      this.#told = now;
      const { agent, active, max, queued, version } = this;
      this.dispatchEvent(new CustomEvent("capacity-change", { bubbles: true, composed: true, detail: { agent, active, max, queued, version } }));
    });
  }

  /** Connects to `src`, where there is one and something to show itself with. */
  #follow() {
    this.#socket?.stop();
    this.#socket = null;
    const base = this.#base();
    if (!base || !this.agent || this.#ticket === undefined || this.#ticket === null || this.#ticket === "") return;
    if (!this.hasAttribute("max")) this.max = LIMIT_OF_A_NEW_AGENT;
    const store = new CapacityStore();
    store.addEventListener("change", () => this.show(store.get(this.agent)));
    store.addEventListener("stale", () => {
      this.asOf = store.asOf.toISOString();
      this.stale = store.stale;
    });
    this.#socket = new CapacitySocket(store, { base, agents: [this.agent], ticket: this.#tickets(this.#ticket) });
    this.#socket.start();
  }

  #base() {
    try {
      return this.src ? new URL(this.src, location.href) : null;
    } catch {
      return null;
    }
  }

  /** @param {unknown} ticket @returns {() => any} */
  #tickets(ticket) {
    if (typeof ticket === "function") return /** @type {() => any} */ (ticket);
    let unspent = /** @type {string | null} */ (String(ticket));
    return () => {
      const now = unspent;
      unspent = null;
      return now;
    };
  }
}

if (!customElements.get("capacity-meter")) customElements.define("capacity-meter", CapacityMeter);
