// @ts-check
/** Keeps every `<capacity-meter agent=…>` of the page in step with one socket. */
import "../elements/capacity-meter.js";
import { CapacitySocket } from "../state/socket.js";
import { CapacityStore } from "../state/store.js";

/** @typedef {import("../elements/capacity-meter.js").CapacityMeter} CapacityMeter */

const WORDS = { connecting: "", live: "Live", waiting: "Reconnecting…", polling: "Every 5 seconds", paused: "", refused: "Not live" };

/** @type {CapacityStore | undefined} */
let ofAll;

/**
 * Starts the page's one connection; who follows all agents shares it.
 * @param {{agents?: string[]}} [options] narrows it
 */
export function follow(options = {}) {
  if (options.agents) return connect(options);
  return (ofAll ??= connect(options));
}

/** @param {{agents?: string[]}} options */
function connect(options) {
  const store = new CapacityStore();
  const socket = new CapacitySocket(store, { ...options, shown: () => allMeters().map((meter) => meter.agent) });
  store.addEventListener("change", (event) => showChanged(store, /** @type {CustomEvent} */ (event).detail.names));
  store.addEventListener("stale", () => allMeters().forEach((meter) => showAge(store, meter)));
  socket.addEventListener("status", (event) => say(/** @type {CustomEvent} */ (event).detail));
  socket.start();
  return store;
}

/** @returns {CapacityMeter[]} */
function allMeters() {
  return [...document.querySelectorAll("capacity-meter[agent]")].map((meter) => /** @type {CapacityMeter} */ (meter));
}

/** @param {CapacityStore} store @param {string[]} names */
function showChanged(store, names) {
  const changed = new Set(names);
  for (const meter of allMeters()) if (changed.has(meter.agent)) meter.show(store.get(meter.agent));
}

/** @param {CapacityStore} store @param {CapacityMeter} meter */
function showAge(store, meter) {
  meter.asOf = store.asOf.toISOString();
  meter.stale = store.stale;
}

/** @param {{state: keyof WORDS, code?: number}} status */
function say({ state, code }) {
  const line = document.getElementById("live");
  // While it connects or sleeps the last word stays: a status line that flickers is read out each time.
  if (!line || state === "connecting" || state === "paused") return;
  if (line.dataset.state === state) return;
  line.dataset.state = state;
  line.replaceChildren(...(code === 4401 ? ["Signed out: ", signIn()] : [WORDS[state]]));
}

/** Back to this page, once signed in. */
function signIn() {
  const next = encodeURIComponent(location.pathname + location.search);
  return Object.assign(document.createElement("a"), { href: `/login/?next=${next}`, textContent: "sign in" });
}
