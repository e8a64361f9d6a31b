// @ts-check
/** What a meter makes of values: numbers out of attributes, a level, cells, words. */

/** More cells than this would be thinner than a pixel; a larger `max` is drawn in proportion. */
const MOST_CELLS = 64;

/**
 * What a meter shows.
 *
 * @typedef {{active: number | null, max: number, queued: number, paused: boolean, stale: boolean, asOf: string, count: boolean}} Shown
 */

/**
 * A whole number ≥ `least` out of anything; `otherwise` where there is none in it.
 * @param {unknown} value @param {number} otherwise @param {number} [least]
 */
export function whole(value, otherwise, least = 0) {
  if (value === null || value === undefined || typeof value === "symbol" || String(value).trim() === "") return otherwise;
  const number = Number(value);
  return Number.isFinite(number) ? Math.max(least, Math.trunc(number)) : otherwise;
}

/** @param {number} active @param {number} max */
export function levelOf(active, max) {
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

/**
 * How many cells there are, and how many of them are filled.
 * @param {number | null} active @param {number} max
 */
export function cellsOf(active, max) {
  const filled = active === null ? 0 : Math.min(active, max);
  const count = Math.min(max, MOST_CELLS);
  if (count === max || filled === 0) return { count, lit: filled };
  // In proportion where not every slot has a cell; one taken slot still shows, one free slot too.
  return { count, lit: filled === max ? count : Math.min(count - 1, Math.max(1, Math.round((filled / max) * count))) };
}

/** Which of a meter's states are on. @param {Shown} shown */
export function statesOf({ active, max, paused, stale }) {
  return { full: active !== null && active >= max, over: active !== null && active > max, paused, stale, unknown: active === null };
}

/** What stands beside the bar. @param {Shown} shown @returns {[string, string][]} part and text */
export function linesOf({ active, max, queued, paused, stale, asOf, count }) {
  /** @type {[string, string][]} */
  const lines = [];
  if (active === null) lines.push(["count", "unknown"]);
  else if (active > max) lines.push(["count", `${active} of ${max}, over limit`]);
  else if (count) lines.push(["count", `${active}/${max}`]);
  if (queued > 0) lines.push(["waiting", `+${queued} waiting`]);
  if (paused) lines.push(["paused", "paused"]);
  if (stale) lines.push(["as-of", asOfText(asOf)]);
  return lines;
}

/** The whole in one sentence, for who hears it. @param {Shown} shown */
export function sentenceOf({ active, max, queued, paused, stale, asOf }) {
  const parts = [active === null ? "slots in use unknown" : `${active} of ${max} slots in use`];
  if (active !== null && active > max) parts.push("over limit");
  if (queued > 0) parts.push(`${queued} waiting`);
  if (paused) parts.push("paused");
  if (stale) parts.push(asOfText(asOf));
  return parts.join(", ");
}

/** @param {string} asOf */
function asOfText(asOf) {
  const time = timeOfDay(asOf);
  return time ? `as of ${time}` : "out of date";
}
