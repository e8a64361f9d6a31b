// @ts-check
/** The dashboard's rows: cells kept right, order kept but while somebody points at it. */
import { HEALTH, healthOf } from "../state/health.js";
import { drawSparklines, noteUse } from "./sparkline.js";

/** @typedef {import("../state/store.js").CapacityStore} CapacityStore */
/** @typedef {import("../state/store.js").Capacity} Capacity */

const ORDER = Object.keys(HEALTH);
/** Rows move no more often than this: two that change places all the time can't be read. */
const SETTLE_MS = 500;
/** @type {Record<string, (capacity: Capacity, row: HTMLElement) => number>} */
const KEYS = {
  used: (capacity) => (capacity.active === null ? -1 : capacity.active / Math.max(1, capacity.max)),
  waiting: (capacity) => capacity.queued ?? 0,
  health: (capacity) => ORDER.indexOf(healthOf(capacity)),
  limit: (_, row) => Number(row.dataset.stored),
};

let held = false;
let unordered = false;
/** @type {number | undefined} */
let timer;
/** Agents that were there when the list was made. @type {Set<string> | null} */
let known = null;

/** Looks after the list that is in the page now. @param {CapacityStore} store */
export function bindList(store) {
  const table = document.querySelector(".list__table");
  held = false;
  unordered = false;
  known = null;
  for (const type of ["pointerenter", "focusin"]) table?.addEventListener(type, () => (held = true));
  for (const type of ["pointerleave", "focusout"])
    table?.addEventListener(type, () => {
      held = table.matches(":hover, :focus-within");
      if (!held && unordered) orderSoon(store);
      note();
    });
}

/** @param {CapacityStore} store @param {string[]} names of those that changed */
export function showRows(store, names) {
  const changed = new Set(names);
  for (const row of rows()) {
    const name = row.dataset.agent ?? "";
    const capacity = store.get(name);
    if (!capacity) row.remove();
    else if (changed.has(name)) showRow(row, capacity);
  }
  known ??= new Set(store.names);
  drawSparklines(store);
  unordered = true;
  if (held) note();
  else orderSoon(store);
  note(store.names.filter((name) => !known?.has(name)).length);
}

/** @returns {HTMLElement[]} */
function rows() {
  return [...document.querySelectorAll("#rows > tr")].map((row) => /** @type {HTMLElement} */ (row));
}

/** @param {HTMLElement} row @param {Capacity} capacity */
function showRow(row, capacity) {
  write(row, "used", `${capacity.active ?? "?"}/${capacity.max}`);
  // Null while the slot store is out of reach: what the server made stays.
  if (capacity.queued !== null) write(row, "waiting", String(capacity.queued));
  const badge = /** @type {HTMLElement} */ (row.querySelector(".health"));
  const health = healthOf(capacity);
  badge.dataset.health = health;
  badge.textContent = HEALTH[health];
  showPause(row, capacity.paused);
  showLimit(row, capacity.max);
  noteUse(row, capacity);
}

/** @param {HTMLElement} row @param {string} cell @param {string} text */
function write(row, cell, text) {
  const place = row.querySelector(`[data-cell=${cell}]`);
  if (place && place.textContent !== text) place.textContent = text;
}

/** What limits it is a pause, or else what did before. @param {HTMLElement} row @param {boolean} paused */
function showPause(row, paused) {
  const place = /** @type {HTMLElement} */ (row.querySelector("[data-cell=limited]"));
  const said = /paused/i.test(place.textContent ?? "");
  const all = /** @type {HTMLButtonElement | null} */ (document.getElementById("pause-all"));
  // The socket tells of the fleet's pause before the request for it is answered.
  const fleet = document.getElementById("fleet-paused")?.hidden === false || all?.disabled === true;
  if (paused) {
    if (!said) place.dataset.else = place.textContent ?? "";
    place.textContent = fleet ? "Fleet paused" : "Paused";
  } else if (said) place.textContent = place.dataset.else || "Agent limit";
  const button = /** @type {HTMLButtonElement | null} */ (row.querySelector("[data-pause]"));
  // While the fleet is paused nobody can tell from here whether the agent is, too.
  if (!button || fleet || button.disabled) return;
  button.dataset.pause = paused ? "resume" : "pause";
  button.textContent = paused ? "Resume" : "Pause";
  button.setAttribute("aria-label", `${button.textContent} ${row.dataset.agent}`);
}

/** A limit that somebody else changed. @param {HTMLElement} row @param {number} max */
function showLimit(row, max) {
  const field = row.querySelector("input");
  const ceiling = Number(field?.max);
  // Held below the ceiling, the stored one can't be told from here.
  if (!field || field === document.activeElement || field.dataset.due !== undefined || max === Math.min(Number(row.dataset.stored), ceiling)) return;
  row.dataset.stored = String(max);
  field.value = String(max);
}

/** @param {CapacityStore} store */
function orderSoon(store) {
  timer ??= window.setTimeout(() => {
    timer = undefined;
    if (!held) order(store);
  }, SETTLE_MS);
}

/** @param {CapacityStore} store */
function order(store) {
  unordered = false;
  const sort = document.getElementById("list")?.dataset.sort ?? "name";
  const key = KEYS[sort.replace("-", "")];
  const body = document.getElementById("rows");
  if (!key || !body) return;
  const sign = sort.startsWith("-") ? -1 : 1;
  const value = (/** @type {HTMLElement} */ row) => {
    const capacity = store.get(row.dataset.agent ?? "");
    return capacity ? key(capacity, row) : 0;
  };
  const before = rows();
  const after = before
    .map((row) => ({ row, name: row.dataset.agent ?? "", value: value(row) }))
    .sort((one, other) => sign * (one.value - other.value) || (one.name < other.name ? -1 : 1))
    .map(({ row }) => row);
  if (after.some((row, index) => row !== before[index])) body.append(...after);
  note();
}

let added = 0;

/** @param {number} [more] agents that the list doesn't show yet */
function note(more = added) {
  added = more;
  const line = document.getElementById("list-note");
  if (!line) return;
  const text = added ? `${added} new ${added === 1 ? "agent" : "agents"}: search again to see` : held ? "Order held while you are in the list" : "";
  if (line.textContent !== text) line.textContent = text;
}
