// @ts-check
/**
 * `<capacity-meter>`: an agent's slots as a vertical bar of cells, filled from the bottom.
 *
 * Shows its attributes (`agent active max queued paused stale as-of version height width count`, each also a
 * property), or with `src` keeps itself up to date. `docs/meter.md` describes it for other pages.
 */
import { follow } from "./meter-feed.js";
import { sharedSheet } from "./meter-style.js";
import { cellsOf, levelOf, linesOf, sentenceOf, statesOf, whole } from "./meter-values.js";

export class CapacityMeter extends HTMLElement {
  static observedAttributes = ["active", "max", "height", "width", "agent", "queued", "paused", "stale", "as-of", "version", "count", "src"];

  #internals = this.attachInternals();
  #bar = document.createElement("div");
  #text = document.createElement("div");
  /** @type {{stop: () => void} | null} */
  #feed = null;
  /** @type {unknown} */
  #ticket;
  /** @type {unknown} */
  #token;
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
    for (const name of ["active", "max", "height", "width", "agent", "queued", "paused", "stale", "asOf", "version", "count"]) this.#upgrade(name);
    for (const name of ["src", "token", "ticket"]) this.#upgrade(name);
    this.#told = this.#signature();
    this.#render();
    this.#follow();
  }

  disconnectedCallback() {
    this.#feed?.stop();
    this.#feed = null;
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

  /** A bearer token to ask with while no socket can be had, or a function that gets one. Never an attribute either. */
  get token() {
    return this.#token;
  }
  set token(value) {
    this.#token = value;
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
    const { active, max, stale } = this;
    this.#drawCells();
    this.#bar.dataset.level = active === null ? "unknown" : levelOf(active, max);
    this.#bar.toggleAttribute("data-unknown", active === null);
    this.#bar.toggleAttribute("data-stale", stale);
    this.#bar.style.setProperty("--_width", `${this.width}px`);
    this.#bar.style.setProperty("--_height", `${this.height}px`);
    this.#writeLines(linesOf(this));
    this.#describe();
    for (const [state, on] of Object.entries(statesOf(this))) this.#setState(state, on);
  }

  #drawCells() {
    const { count, lit } = cellsOf(this.active, this.max);
    while (this.#bar.childElementCount > count) this.#bar.lastElementChild?.remove();
    while (this.#bar.childElementCount < count) this.#bar.append(Object.assign(document.createElement("div"), { className: "cell" }));
    [...this.#bar.children].forEach((cell, index) => {
      cell.toggleAttribute("data-filled", index < lit);
      cell.setAttribute("part", index < lit ? "cell filled" : "cell");
    });
    this.#bar.toggleAttribute("data-dense", count * 4 > this.height && this.height > 0);
    if (count * 2 > this.height && this.height > 0) this.#bar.dataset.dense = "very";
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
    this.setAttribute("aria-valuetext", sentenceOf(this));
    this.removeAttribute("aria-description");
    this.#name(this.agent ? `${this.agent} slots` : "Slots");
  }

  /** A meter must have a value; what has none is a picture of not knowing. */
  #describeUnknown() {
    this.setAttribute("role", "img");
    for (const name of ["valuemin", "valuemax", "valuenow", "valuetext"]) this.removeAttribute(`aria-${name}`);
    const sentence = sentenceOf(this);
    this.setAttribute("aria-description", sentence);
    this.#name(this.agent ? `${this.agent}: ${sentence}` : sentence);
  }

  /** Names the meter, unless its page did. @param {string} text */
  #name(text) {
    if (!this.#named && (this.hasAttribute("aria-label") || this.hasAttribute("aria-labelledby"))) return;
    this.#named = true;
    this.setAttribute("aria-label", text);
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
    this.#feed?.stop();
    this.#feed = follow(this);
  }
}

if (!customElements.get("capacity-meter")) customElements.define("capacity-meter", CapacityMeter);
