// @ts-check
/** Moments along the top. */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const STEPS = [MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR];
/** Pixels that a label needs. */
const ROOM = 84;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** @param {number} at */
export const timeOfDay = (at) => clock.format(at);
/** @param {number} at */
export const moment = (at) => full.format(at);

/** Even moments of the reader's own day. @param {number} from @param {number} span @param {number} width @returns {number[]} */
export function ticksOf(from, span, width) {
  const step = STEPS.find((one) => (one / span) * width >= ROOM) ?? 24 * HOUR;
  const offset = new Date(from).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at < from + span; at += step) ticks.push(at);
  return ticks;
}

export class Axis {
  /** @type {HTMLElement[]} */
  #labels = [];
  /** @type {number[]} */
  #told = [];

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
  }

  /** @param {number[]} ticks @param {number} from @param {number} span @param {number} width */
  show(ticks, from, span, width) {
    while (this.#labels.length < ticks.length) {
      const label = document.createElement("span");
      label.className = "timeline__tick";
      this.#labels.push(label);
      this.element.append(label);
    }
    this.#labels.forEach((label, place) => {
      label.hidden = place >= ticks.length;
      if (label.hidden) return;
      if (this.#told[place] !== ticks[place]) label.textContent = labelOf(ticks[place]);
      this.#told[place] = ticks[place];
      label.style.transform = `translateX(${Math.round(((ticks[place] - from) / span) * width)}px)`;
    });
  }
}

/** A new day says which. @param {number} at */
function labelOf(at) {
  const date = new Date(at);
  return date.getHours() === 0 && date.getMinutes() === 0 ? day.format(at) : clock.format(at);
}
