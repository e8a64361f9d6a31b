// @ts-check
/** A meter's own connection to a server. */
import { CapacitySocket } from "../state/socket.js";
import { CapacityStore } from "../state/store.js";

/** @typedef {import("./capacity-meter.js").CapacityMeter} CapacityMeter */

/** What a followed agent shows before its first values. */
const LIMIT_OF_A_NEW_AGENT = 3;

/**
 * Keeps the meter as its agent is at its `src`; null where it lacks one of the two, or a ticket.
 * @param {CapacityMeter} meter
 * @returns {{stop: () => void} | null}
 */
export function follow(meter) {
  const base = baseOf(meter);
  const ticket = supplier(meter.ticket, { once: true });
  if (!base || !meter.agent || !ticket) return null;
  const given = meter.hasAttribute("max");
  if (!given) meter.max = LIMIT_OF_A_NEW_AGENT;
  const store = new CapacityStore();
  store.addEventListener("change", () => meter.show(store.get(meter.agent)));
  store.addEventListener("stale", () => {
    meter.asOf = store.asOf.toISOString();
    // What was never known is not out of date either.
    meter.stale = store.stale && (given || store.names.length > 0);
  });
  const agents = [meter.agent];
  const socket = new CapacitySocket(store, { base, agents, ticket, token: supplier(meter.token), shown: () => agents });
  socket.start();
  return socket;
}

/** @param {CapacityMeter} meter */
function baseOf(meter) {
  try {
    return meter.src ? new URL(meter.src, location.href) : null;
  } catch {
    return null;
  }
}

/**
 * What gives the credential each time it is needed; undefined where there is none.
 * @param {unknown} given a text, or a function that gets one
 * @param {{once?: boolean}} [options] `once`: a text is spent by its first use, and null follows
 * @returns {(() => any) | undefined}
 */
function supplier(given, { once = false } = {}) {
  if (typeof given === "function") return /** @type {() => any} */ (given);
  if (given === undefined || given === null || given === "") return undefined;
  let unspent = /** @type {string | null} */ (String(given));
  return () => {
    const now = unspent;
    if (once) unspent = null;
    return now;
  };
}
