// @ts-check
/** The timeline: swim lanes of what ran and waited. `startTimeline` makes one of the markup in `_timeline.html`. */
import { Axis, ticksOf, timeOfDay } from "./timeline-axis.js";
import { Card } from "./timeline-card.js";
import { History } from "./timeline-data.js";
import { Painter, rowOf, tileOf } from "./timeline-draw.js";
import { Heads } from "./timeline-heads.js";
import { listen } from "./timeline-input.js";
import { beginOf, KINDS } from "./timeline-lanes.js";
import { LANE, Layout } from "./timeline-layout.js";
import { fillTable, summaryOf } from "./timeline-table.js";
import { View, spanName } from "./timeline-view.js";
/** @typedef {import("../state/store.js").CapacityStore} CapacityStore */
/** @typedef {import("./timeline-lanes.js").Run} Run */

const SETTLED_MS = 200;
/** Pixels drawn above and below what is seen: scrolling shows them before the next frame does. */
const OVERSCAN = 64;
/** What is pointed at is looked up once the view rests: a card for each run that passes by would be unreadable, and slow. */
const RESTS_AFTER_MS = 120;
const LONGEST_STILL_MS = 5000;
/** How far from a bar it still is pointed at. */
const NEAR_PX = 4;

class Timeline {
  /** @type {string[] | null} */
  #only = null;
  #layout;
  #stale = true;
  #frameDue = false;
  /** @type {number | undefined} */
  #settling;
  /** @type {number | undefined} */
  #ticking;
  /** @type {number | undefined} */
  #resting;
  /** @type {Run | null} */
  #chosen = null;
  /** @type {Run | null} */
  #pointed = null;
  /** @type {{x: number, y: number} | null} */
  #pointer = null;
  #lookDue = false;
  #width = 0;
  #height = 0;
  #spans;
  #live;
  #shown;

  /** @param {HTMLElement} root @param {CapacityStore} store */
  constructor(root, store) {
    this.root = root;
    this.store = store;
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (root.querySelector(`[data-part=${name}]`));
    this.part = part;
    this.history = new History(root.dataset.agent ?? "", Number(root.dataset.now) * 1000 || undefined);
    this.view = new View(() => this.history.now, new URLSearchParams(location.search));
    this.#spans = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("button[data-span]")]);
    this.#live = /** @type {HTMLElement} */ (root.querySelector("[data-act=live]"));
    this.#shown = part("shown");
    this.scroller = part("scroll");
    this.plot = part("plot");
    this.painter = new Painter(/** @type {HTMLCanvasElement} */ (part("canvas")), this.history);
    this.axis = new Axis(part("axis"));
    this.heads = new Heads(part("heads"), this.history, store);
    this.card = new Card(part("card"), root, part("voice"));
    this.#layout = new Layout([], this.history, () => undefined);
    this.#listen();
    this.#dress();
    this.#settle();
  }

  /** Shows these agents alone; null: all. @param {string[] | null} names */
  show(names) {
    this.#only = names;
    this.#renew();
  }

  /** The agents shown, by name. */
  get names() {
    if (!this.#only) return this.history.names;
    const only = new Set(this.#only);
    return this.history.names.filter((name) => only.has(name));
  }

  #listen() {
    const { view, history, store, scroller } = this;
    view.addEventListener("change", () => this.#moved());
    history.addEventListener("change", () => this.#renew());
    history.addEventListener("busy", () => (this.part("busy").hidden = !history.busy));
    history.addEventListener("failed", (event) => this.#failed(/** @type {CustomEvent} */ (event).detail));
    store.addEventListener("change", () => {
      history.renew();
      this.heads.renew();
      this.#renew();
    });
    scroller.addEventListener("scroll", () => this.#moved(), { passive: true });
    new ResizeObserver(() => this.#measure()).observe(scroller);
    for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) matchMedia(query).addEventListener("change", () => this.#dress());
    document.addEventListener("visibilitychange", () => document.hidden || this.#draw());
    this.#controls();
    listen({
      element: this.plot, scroller, view, width: () => Math.max(1, this.#width),
      timeAt: (x) => this.#timeAt(x),
      point: (x, y) => this.#point(x, y),
      open: (x, y, apart) => open(this.#runAt(x, y), apart),
      choose: (slots, runs) => this.#choose(slots, runs),
      openChosen: (apart) => open(this.#chosen, apart),
      unchoose: () => this.#unchoose(),
      toStart: () => view.pan(history.earliest - view.from),
    });
    this.plot.addEventListener("blur", () => this.#unchoose());
  }

  #controls() {
    const { view } = this;
    /** @type {Record<string, () => void>} */
    const acts = {
      in: () => view.step(-1), out: () => view.step(1), back: () => view.glide(-view.span / 2), forth: () => view.glide(view.span / 2),
      live: () => view.follow(!view.live), again: () => this.#settle(),
    };
    this.root.addEventListener("click", (event) => {
      const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("button"));
      if (button?.dataset.span) view.zoom(Number(button.dataset.span) * 60_000);
      else acts[button?.dataset.act ?? ""]?.();
    });
    /** @type {HTMLDetailsElement} */ (this.part("details")).addEventListener("toggle", () => this.#tell());
  }

  // -- Drawing
  #dress() {
    /** @type {Record<string, string>} */
    const colors = {};
    for (const swatch of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll("[data-color]"))) {
      colors[swatch.dataset.color ?? ""] = getComputedStyle(swatch).color;
    }
    this.painter.dress(colors);
    for (const swatch of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll(".timeline__swatch"))) {
      const ratio = window.devicePixelRatio || 1;
      swatch.style.backgroundImage = `url(${tileOf(swatch.dataset.color ?? KINDS[0], colors, ratio).toDataURL()})`;
    }
    this.#draw();
  }

  #measure() {
    this.#width = this.plot.clientWidth;
    this.#height = this.scroller.clientHeight;
    this.#draw();
  }

  /** The lanes may be others than they were. */
  #renew() {
    this.#stale = true;
    this.#draw();
  }

  #moved() {
    this.#draw();
    if (this.#pointer) this.#lookLater();
    clearTimeout(this.#settling);
    this.#settling = window.setTimeout(() => this.#settle(), SETTLED_MS);
  }

  #draw() {
    if (this.#frameDue) return;
    this.#frameDue = true;
    requestAnimationFrame(() => {
      this.#frameDue = false;
      this.#paint();
    });
  }

  #paint() {
    if (this.#stale) this.#lay();
    const { view, history, scroller } = this;
    const { from, span } = view;
    const top = Math.max(0, Math.round(scroller.scrollTop) - OVERSCAN);
    const height = Math.max(1, Math.min(this.#layout.height - top, this.#height + 2 * OVERSCAN));
    const ticks = ticksOf(from, span, this.#width);
    if (this.#pointer && this.#lookDue) this.#look(this.#pointer.x, this.#pointer.y);
    this.#lookDue = false;
    this.axis.show(ticks, from, span, this.#width);
    this.heads.place(this.#layout.between(top, top + height));
    this.painter.canvas.style.transform = `translateY(${top}px)`;
    if (this.#width) this.painter.paint(this.#layout, { from, span, top, width: this.#width, height, ticks, chosen: this.#chosen, pointed: this.#pointed });
    this.#showControls();
    // Now moves by a pixel: the next frame is due then.
    clearTimeout(this.#ticking);
    if (view.to > history.now && !document.hidden) {
      this.#ticking = window.setTimeout(() => this.#draw(), Math.min(LONGEST_STILL_MS, Math.max(250, span / Math.max(1, this.#width))));
    }
  }

  #lay() {
    this.#stale = false;
    const { names, history } = this;
    this.#layout = new Layout(names, history, (name) => this.store.get(name)?.max);
    this.#lookDue = true;
    this.part("space").style.blockSize = `${this.#layout.height}px`;
    this.part("none").hidden = !history.heard || names.length > 0;
    this.part("left-out").hidden = !history.truncated;
    this.#tellSoon();
  }

  #showControls() {
    const { view } = this;
    for (const button of this.#spans) {
      setAttribute(button, "aria-pressed", String(Math.abs(Number(button.dataset.span) * 60_000 - view.span) < 1000));
    }
    setAttribute(this.#live, "aria-pressed", String(view.live));
    const shown = `${spanName(view.span)} up to ${view.live ? "now" : timeOfDay(view.to)}`;
    if (this.#shown.textContent !== shown) this.#shown.textContent = shown;
  }

  // -- Knowing
  #settle() {
    const { view } = this;
    this.part("failed").hidden = true;
    const pad = view.span > 6 * 3_600_000 ? view.span / 4 : view.span / 2;
    this.history.want(view.from - pad, view.to + pad);
    this.#tell();
  }

  /** @param {any} error */
  #failed(error) {
    if (error.status === undefined) throw error;
    const out = error.status === 401;
    this.part("failed").hidden = false;
    this.part("why").textContent = out ? "You are signed out." : `The timeline can't be read: ${error.message}`;
    /** @type {HTMLElement} */ (this.root.querySelector("[data-act=again]")).hidden = out;
    const link = /** @type {HTMLAnchorElement} */ (this.part("sign-in"));
    link.hidden = !out;
    link.href = `/login/?next=${encodeURIComponent(location.pathname + location.search)}`;
  }

  #tellSoon() {
    clearTimeout(this.#settling);
    this.#settling = window.setTimeout(() => this.#settle(), SETTLED_MS);
  }

  #tell() {
    const { names, history, view } = this;
    if (!history.heard) return;
    const [from, to] = [view.from, Math.min(view.to, history.now)];
    this.part("summary").textContent = summaryOf(history, names, from, to);
    if (/** @type {HTMLDetailsElement} */ (this.part("details")).open) fillTable(this.part("table"), history, names, from, to);
  }

  // -- Pointing and choosing
  /** @param {number} x of the window */
  #timeAt(x) {
    const { left } = this.plot.getBoundingClientRect();
    return this.view.from + ((x - left) / Math.max(1, this.#width)) * this.view.span;
  }

  /** @param {number} x @param {number} y of the window @returns {Run | null} */
  #runAt(x, y) {
    const row = this.#layout.rowAt(y - this.plot.getBoundingClientRect().top);
    const lane = row && this.history.lanesOf(row.block.name)?.lanes.get(row.slot);
    const at = this.#timeAt(x);
    if (!lane || at > this.history.now + this.view.span / 100) return null;
    return lane.at(at, (NEAR_PX / Math.max(1, this.#width)) * this.view.span);
  }

  /** @param {number | null} x @param {number} y */
  #point(x, y) {
    const looked = this.#pointer !== null;
    this.#pointer = x === null ? null : { x, y };
    if (x !== null) this.#lookDue = this.#resting === undefined;
    else if (looked) this.#look(null, 0);
    this.#draw();
  }

  /** Hides what was pointed at until the view rests. */
  #lookLater() {
    this.#pointed = null;
    this.card.show(null, 0, 0, 0);
    this.#lookDue = false;
    clearTimeout(this.#resting);
    this.#resting = window.setTimeout(() => {
      this.#resting = undefined;
      this.#lookDue = true;
      this.#draw();
    }, RESTS_AFTER_MS);
  }

  /** @param {number | null} x @param {number} y */
  #look(x, y) {
    this.#pointed = x === null ? null : this.#runAt(x, y);
    this.plot.toggleAttribute("data-over", this.#pointed !== null);
    this.heads.tell(x === null ? null : this.#timeAt(x));
    this.card.show(this.#pointed, x ?? 0, y, this.history.now);
  }

  /** @param {number} slots @param {number} runs */
  #choose(slots, runs) {
    const next = this.#chosen ? this.#beside(this.#chosen, slots, runs) : this.#first();
    if (!next) return;
    this.#chosen = next;
    this.#bring(next);
    this.card.say(next, this.history.now);
  }

  /** The one that is nearest to the middle of what is seen. @returns {Run | null} */
  #first() {
    const { scrollTop } = this.scroller;
    const rows = this.#layout.between(scrollTop, scrollTop + this.#height).flatMap((block) => this.#layout.rowsOf(block));
    return this.#nearest(rows, Math.min(this.view.centre, this.history.now));
  }

  /** @param {import("./timeline-layout.js").Row[]} rows @param {number} at */
  #nearest(rows, at) {
    for (const row of rows) {
      const found = this.history.lanesOf(row.block.name)?.lanes.get(row.slot)?.at(at, this.view.span / 2);
      if (found) return found;
    }
    return null;
  }

  /** @param {Run} run @param {number} slots @param {number} runs @returns {Run | null} */
  #beside(run, slots, runs) {
    const lane = this.history.lanesOf(run.agent)?.laneOf(run.slot ?? 0);
    if (runs) {
      lane?.between(0, 0); // in order from here on
      return lane?.runs[lane.runs.indexOf(run) + runs] ?? null;
    }
    const rows = this.#layout.blocks.flatMap((block) => this.#layout.rowsOf(block));
    const place = rows.findIndex((row) => row.block.name === run.agent && row.slot === (run.slot ?? 0));
    const way = slots < 0 ? rows.slice(0, Math.max(0, place)).reverse() : rows.slice(place + 1);
    return this.#nearest(way, Math.min(beginOf(run), this.history.now));
  }

  /** Into view, with its card. @param {Run} run */
  #bring(run) {
    const { view, history, scroller } = this;
    const at = Math.min(beginOf(run), history.now);
    if (at < view.from || at > view.to) view.pan(at - view.centre);
    const row = rowOf(this.#layout, run);
    if (!row) return;
    if (row.y < scroller.scrollTop || row.y + LANE > scroller.scrollTop + this.#height) scroller.scrollTop = row.y - this.#height / 2;
    const box = this.plot.getBoundingClientRect();
    const x = box.left + ((at - view.from) / view.span) * this.#width;
    this.heads.tell(at);
    this.card.show(run, x, row.y + box.top + LANE, history.now);
    this.#draw();
  }

  #unchoose() {
    if (!this.#chosen) return;
    this.#chosen = null;
    this.heads.tell(null);
    this.card.show(null, 0, 0, 0);
    this.card.say(null, 0);
    this.#draw();
  }
}

/** @param {HTMLElement} element @param {string} name @param {string} value */
function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** @param {Run | null} run @param {boolean} apart in a tab of its own */
function open(run, apart) {
  if (!run) return;
  const path = `/executions/${run.id}/`;
  if (apart) window.open(path, "_blank", "noopener");
  else location.assign(path);
}

/**
 * Makes a timeline of its markup.
 * @param {HTMLElement} root @param {CapacityStore} store the page's one store
 * @returns {{show: (names: string[] | null) => void}} `show` narrows it to some agents
 */
export function startTimeline(root, store) {
  return new Timeline(root, store);
}
