// @ts-check
/** The agent's past under other limits: one request a window, the slider moves over what it brought. */
import { Refused, get } from "../lib/api.js";
import { element, html } from "../lib/html.js";
import { duration } from "./times.js";

/**
 * @typedef {{started: number, wait_p50_seconds: number | null, wait_p95_seconds: number | null, peak_running: number, peak_waiting: number,
 *   utilisation: number, left: number, limit?: number, rejected?: number}} Figures
 * @typedef {{limit: number, arrivals: number, assumed_runs: number, typical_run_seconds: number, truncated: boolean, since: string,
 *   depth: number, actual: Figures, results: (Figures & {limit: number})[]}} WhatIf
 */

/** How long the slider has to rest before it is read out. */
const SAID_AFTER_MS = 600;
const WIDTH = 320, HEIGHT = 120, LEFT = 44, RIGHT = 10, TOP = 14, BOTTOM = 22;

const part = /** @type {HTMLDetailsElement} */ (document.getElementById("what-if"));
const note = byId("what-if-note"), found = byId("what-if-found"), said = byId("what-if-said"), curve = byId("what-if-curve");
const slider = /** @type {HTMLInputElement} */ (byId("what-if-limit"));
const name = part.dataset.agent ?? "";

/** @type {WhatIf | null} */
let answer = null;
let asked = 0, timer = 0;

/** @param {string} id */
function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

function chosenWindow() {
  return /** @type {HTMLInputElement} */ (part.querySelector("[name=what-if-window]:checked")).value;
}

/** Asks for the window; an answer that another request has overtaken is dropped. */
async function load() {
  const mine = ++asked;
  tell(answer ? "" : "Working it out…");
  found.setAttribute("aria-busy", "true");
  try {
    const told = await get(`/api/agents/${encodeURIComponent(name)}/what-if?window=${chosenWindow()}`);
    if (mine === asked) show(told);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (mine === asked) fail(error);
  } finally {
    if (mine === asked) found.removeAttribute("aria-busy");
  }
}

/** @param {string} text @param {boolean} [bad] */
function tell(text, bad = false) {
  note.textContent = text;
  note.hidden = !text;
  note.classList.toggle("notice--bad", bad);
}

/** @param {Refused} error */
function fail(error) {
  answer = null;
  found.hidden = true;
  tell(error.message, true);
  if (error.status === 401 || error.status === 403) {
    note.append(" ", element(html`<a href="/login/?next=${encodeURIComponent(location.pathname)}">Sign in</a>`));
  } else {
    const again = element(html`<button type="button" class="button button--small">Try again</button>`);
    again.addEventListener("click", load);
    note.append(" ", again);
  }
}

/** @param {WhatIf} told */
function show(told) {
  answer = told;
  const nothing = told.arrivals === 0;
  tell(nothing ? `Nothing arrived in the last ${chosenWindow() === "24h" ? "24 hours" : "7 days"}: there is nothing to replay.` : "");
  found.hidden = nothing;
  if (nothing) return;
  const before = slider.value;
  slider.max = String(told.results.length);
  slider.value = before;
  byId("what-if-now").textContent = `now ${told.limit}`;
  byId("what-if-about").textContent = about(told);
  choose();
}

/** What the figures rest on. @param {WhatIf} told */
function about(told) {
  const parts = [`${counted(told.arrivals, "arrival")}; at most ${told.depth.toLocaleString()} in line.`];
  if (told.truncated) parts.push(`Only the newest were replayed, since ${new Date(told.since).toLocaleString()}.`);
  if (told.assumed_runs) parts.push(`For ${told.assumed_runs.toLocaleString()} the run time isn't known; ${duration(told.typical_run_seconds * 1000)} was assumed.`);
  return parts.join(" ");
}

/** @param {number} number @param {string} word */
function counted(number, word) {
  return `${number.toLocaleString()} ${word}${number === 1 ? "" : "s"}`;
}

/** @param {number | null} seconds */
function wait(seconds) {
  return seconds === null ? "–" : duration(seconds * 1000);
}

/** @param {number} share */
function percent(share) {
  return `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

/** Shows what the slider stands at. */
function choose() {
  if (!answer) return;
  const limit = Number(slider.value);
  const would = answer.results[limit - 1], really = answer.actual;
  slider.setAttribute("aria-valuetext", counted(limit, "slot"));
  byId("what-if-number").textContent = String(limit);
  byId("what-if-head").textContent = `With ${limit}`;
  byId("what-if-rows").replaceChildren(
    row("Wait, half within", wait(would.wait_p50_seconds), wait(really.wait_p50_seconds)),
    row("Wait, 95 % within", wait(would.wait_p95_seconds), wait(really.wait_p95_seconds)),
    row("Refused", (would.rejected ?? 0).toLocaleString(), "not known"),
    row("Left the line", would.left.toLocaleString(), really.left.toLocaleString()),
    row("Most slots in use", would.peak_running.toLocaleString(), really.peak_running.toLocaleString()),
    row("Most waiting", would.peak_waiting.toLocaleString(), really.peak_waiting.toLocaleString()),
    row("Utilisation", percent(would.utilisation), `${percent(really.utilisation)} of ${answer.limit}`),
  );
  draw(answer, limit);
}

/** @param {string} what @param {string} would @param {string} really */
function row(what, would, really) {
  const body = document.createElement("tbody");
  body.append(element(html`<tr><th scope="row">${what}</th><td class="table__end">${would}</td><td class="table__end">${really}</td></tr>`));
  return /** @type {Element} */ (body.firstElementChild);
}

/** @param {WhatIf} told @param {number} limit */
function draw(told, limit) {
  const most = told.results.length;
  const highest = Math.max(...told.results.map((one) => one.wait_p95_seconds ?? 0));
  const x = (/** @type {number} */ at) => LEFT + ((at - 1) / Math.max(1, most - 1)) * (WIDTH - LEFT - RIGHT);
  const y = (/** @type {number | null} */ seconds) => HEIGHT - BOTTOM - ((seconds ?? 0) / (highest || 1)) * (HEIGHT - TOP - BOTTOM);
  const base = HEIGHT - BOTTOM;
  const points = told.results.map((one) => `${x(one.limit).toFixed(1)},${y(one.wait_p95_seconds).toFixed(1)}`).join(" ");
  const ticks = [...new Set([1, told.limit, most])].filter((at) => at <= most);
  const current = told.results[told.limit - 1];
  // Beside its line, or the word would stand on the scale.
  const aside = x(told.limit) > WIDTH / 2;
  // Parsed as HTML, the parts of an <svg> are SVG elements.
  const drawn = element(html`<svg>
    <line class="what-if__axis" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${base}" y2="${base}"></line>
    <text class="what-if__tick" x="${LEFT - 4}" y="${TOP + 3}" text-anchor="end">${duration(highest * 1000)}</text>
    <text class="what-if__tick" x="${LEFT - 4}" y="${base + 3}" text-anchor="end">0</text>
    ${ticks.map((at) => html`<text class="what-if__tick" x="${x(at)}" y="${HEIGHT - 8}" text-anchor="middle">${at}</text>`)}
    ${current && html`<line class="what-if__now" x1="${x(told.limit)}" x2="${x(told.limit)}" y1="${TOP}" y2="${base}"></line>
    <text class="what-if__tick" x="${x(told.limit) + (aside ? -6 : 6)}" y="${TOP - 5}" text-anchor="${aside ? "end" : "start"}">now</text>
    <circle class="what-if__dot" cx="${x(told.limit)}" cy="${y(current.wait_p95_seconds)}" r="4"></circle>`}
    <polyline class="what-if__line" points="${points}"></polyline>
    <circle class="what-if__dot what-if__dot--chosen" cx="${x(limit)}" cy="${y(told.results[limit - 1].wait_p95_seconds)}" r="4"></circle>
  </svg>`);
  curve.replaceChildren(...drawn.childNodes);
}

/** Reads the chosen limit out once the slider rests. */
function announce() {
  clearTimeout(timer);
  timer = window.setTimeout(() => {
    const would = answer?.results[Number(slider.value) - 1];
    if (!would) return;
    said.textContent = `With ${counted(would.limit, "slot")}: 95 % wait ${wait(would.wait_p95_seconds)} at most, ${(would.rejected ?? 0).toLocaleString()} refused.`;
  }, SAID_AFTER_MS);
}

slider.addEventListener("input", () => {
  choose();
  announce();
});
part.addEventListener("change", (event) => {
  if (/** @type {HTMLInputElement} */ (event.target).name === "what-if-window") load();
});
part.addEventListener("toggle", () => {
  if (part.open && !answer) load();
});
