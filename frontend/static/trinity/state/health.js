// @ts-check
/** How an agent fares, in one word, as the server tells it (`capacity/health.py`): pages say it live from what the socket brings. */

/** In the order in which they apply, each as people read it. */
export const HEALTH = /** @type {const} */ ({
  paused: "Paused",
  over_limit: "Over limit",
  at_capacity: "At capacity",
  backlogged: "Backlogged",
  active: "Active",
  idle: "Idle",
  unknown: "Unknown",
});

/** @typedef {keyof typeof HEALTH} Health */

/** The first that applies. @param {{max: number, active: number | null, queued: number | null, paused: boolean}} capacity @returns {Health} */
export function healthOf({ max, active, queued, paused }) {
  if (paused) return "paused";
  if (active === null) return "unknown";
  if (active > max) return "over_limit";
  if (active === max) return "at_capacity";
  if (queued) return "backlogged";
  return active ? "active" : "idle";
}
