// @ts-check
/** Which span of time is in view; the address says it too. */
import { placeAfter } from "./timeline-lanes.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
export const SHORTEST = 15 * MINUTE;
export const LONGEST = 24 * HOUR;
/** What the buttons offer. */
export const SPANS = [15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR];
/** How much of a live view lies ahead of now. */
const AHEAD = 0.03;
const GLIDE_MS = 160;
const WRITE_AFTER_MS = 300;
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** @param {number} span */
export function spanName(span) {
  return span < HOUR ? `${Math.round(span / MINUTE)} min` : `${Number((span / HOUR).toFixed(1))} h`;
}

/** Says `change` whenever another span is in view. */
export class View extends EventTarget {
  #span = HOUR;
  #to = 0;
  live = true;
  /** @type {number | undefined} */
  #writing;
  #gliding = 0;

  /** @param {() => number} now the server's @param {URLSearchParams} address */
  constructor(now, address) {
    super();
    this.now = now;
    const minutes = Number(address.get("span"));
    if (minutes > 0) this.#span = Math.min(LONGEST, Math.max(SHORTEST, minutes * MINUTE));
    const at = Date.parse(address.get("at") ?? "");
    if (Number.isFinite(at)) [this.live, this.#to] = [false, Math.min(at + this.#span / 2, this.#liveEdge())];
  }

  get span() {
    return this.#span;
  }

  get to() {
    return this.live ? this.#liveEdge() : this.#to;
  }

  get from() {
    return this.to - this.#span;
  }

  get centre() {
    return this.to - this.#span / 2;
  }

  #liveEdge() {
    return this.now() + this.#span * AHEAD;
  }

  /** Moves by so many ms; never beyond the live edge, where it begins to follow. @param {number} by */
  pan(by) {
    this.#place(this.to + by);
  }

  /** As `pan`, in a short glide unless the reader wants none. @param {number} by */
  glide(by) {
    cancelAnimationFrame(this.#gliding);
    if (still.matches) return this.pan(by);
    const began = performance.now();
    const from = this.to;
    /** @param {number} at */
    const step = (at) => {
      const part = Math.min(1, Math.max(0, (at - began) / GLIDE_MS));
      this.#place(from + by * part * (2 - part));
      if (part < 1) this.#gliding = requestAnimationFrame(step);
    };
    this.#gliding = requestAnimationFrame(step);
    return undefined;
  }

  /** Zooms to a span; the moment `about` stays where it is, the live edge where it is in view. @param {number} span @param {number} [about] */
  zoom(span, about = this.live ? this.now() : this.centre) {
    const next = Math.min(LONGEST, Math.max(SHORTEST, span));
    const part = (this.to - about) / this.#span;
    const { live } = this;
    this.#span = next;
    if (live) this.#changed();
    else this.#place(about + part * next);
  }

  /** To the next span of the buttons. @param {1 | -1} way @param {number} [about] */
  step(way, about) {
    const place = placeAfter(Float64Array.from(SPANS), way > 0 ? this.#span : this.#span - 1);
    this.zoom(SPANS[Math.max(0, Math.min(SPANS.length - 1, way > 0 ? place : place - 1))], about);
  }

  /** Follows now, or stays where it is. @param {boolean} live */
  follow(live) {
    cancelAnimationFrame(this.#gliding);
    this.#to = this.to;
    this.live = live;
    this.#changed();
  }

  /** @param {number} to */
  #place(to) {
    const edge = this.#liveEdge();
    this.live = to >= edge;
    this.#to = Math.min(to, edge);
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
    clearTimeout(this.#writing);
    this.#writing = window.setTimeout(() => this.#write(), WRITE_AFTER_MS);
  }

  #write() {
    const url = new URL(location.href);
    url.searchParams.set("span", String(Math.round(this.#span / MINUTE)));
    if (this.live) url.searchParams.delete("at");
    else url.searchParams.set("at", `${new Date(this.centre).toISOString().slice(0, 19)}Z`);
    history.replaceState(history.state, "", url);
  }
}
