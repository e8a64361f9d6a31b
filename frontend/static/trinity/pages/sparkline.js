// @ts-check
/** The lines of the last hour, carried on from where the server drew them. */

/** @typedef {import("../state/store.js").CapacityStore} CapacityStore */
/** @typedef {{active: number, max: number, since: number, used: number, begun: number}} Use  `used`: slot-seconds of the minute under way */

const MINUTE_MS = 60_000;
const WIDTH = 120;
const HEIGHT = 24;

/** @type {WeakMap<HTMLElement, Use>} */
const uses = new WeakMap();

/** Takes a row's new load. @param {HTMLElement} row @param {{active: number | null, max: number}} capacity */
export function noteUse(row, { active, max }) {
  const now = Date.now();
  const use = uses.get(row) ?? { active: 0, max, since: now, used: 0, begun: now };
  use.used += use.active * (now - use.since);
  Object.assign(use, { active: active ?? 0, max, since: now });
  uses.set(row, use);
}

/** Draws the minutes that have ended since. @param {CapacityStore} store */
export function drawSparklines(store) {
  for (const row of document.querySelectorAll("#rows > tr")) {
    const use = uses.get(/** @type {HTMLElement} */ (row));
    const capacity = store.get(row.getAttribute("data-agent") ?? "");
    if (use && capacity && Date.now() - use.begun >= MINUTE_MS) endMinute(/** @type {HTMLElement} */ (row), use);
  }
}

/** @param {HTMLElement} row @param {Use} use */
function endMinute(row, use) {
  noteUse(row, use);
  const values = (row.dataset.used ?? "").split(" ").map(Number);
  const passed = use.since - use.begun;
  const minutes = Math.min(values.length, Math.floor(passed / MINUTE_MS));
  values.splice(0, minutes);
  for (let minute = 0; minute < minutes; minute++) values.push(use.used / passed);
  Object.assign(use, { begun: use.since, used: 0 });
  row.dataset.used = values.map((value) => String(Math.round(value * 100) / 100)).join(" ");
  draw(row, values, use.max);
}

/** @param {HTMLElement} row @param {number[]} values @param {number} limit */
function draw(row, values, limit) {
  const top = Math.max(1, limit, ...values);
  const step = WIDTH / Math.max(1, values.length - 1);
  const line = values.map((value, index) => `${(index * step).toFixed(1)},${(HEIGHT - 1 - (value / top) * (HEIGHT - 2)).toFixed(1)}`).join(" ");
  row.querySelector("polyline")?.setAttribute("points", line);
  row.querySelector("polygon")?.setAttribute("points", `0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}`);
  const mean = values.reduce((total, value) => total + value, 0) / values.length;
  const text = mean ? `Last hour: ${mean.toFixed(1)} of ${limit} slots used on average, ${Math.max(...values).toFixed(1)} at most in one minute` : "Nothing ran in the last hour";
  row.querySelector("svg")?.setAttribute("aria-label", text);
  const title = row.querySelector("svg title");
  if (title) title.textContent = text;
}
