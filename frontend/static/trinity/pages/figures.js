// @ts-check
/** The dashboard's figures, out of what the socket tells of all agents. */
import { element, html } from "../lib/html.js";
import { fetchPage } from "../lib/session.js";
import { localise } from "./times.js";

/** @typedef {import("../state/store.js").CapacityStore} CapacityStore */

/** Who waits longest isn't told by a socket; when their line moves it is asked for, no more often than this. */
const ASK_EVERY_MS = 5000;

/** @type {Map<string, number>} */
let lines = new Map();
let askedAt = -ASK_EVERY_MS;
/** @type {number | undefined} */
let due;

/** @param {CapacityStore} store */
export function showFigures(store) {
  const figures = document.getElementById("figures");
  if (!figures) return;
  const values = store.names.map((name) => /** @type {import("../state/store.js").Capacity} */ (store.get(name)));
  const known = values.every((value) => value.active !== null);
  const running = sum(values.map((value) => value.active ?? 0));
  const places = sum(values.map((value) => (value.paused ? 0 : Math.max(0, value.max - (value.active ?? 0)))));
  const cap = figures.dataset.cap === undefined ? Infinity : Number(figures.dataset.cap);
  const free = Math.min(places, Math.max(0, cap - running - Number(figures.dataset.elsewhere)));
  write("running", known ? running : "unknown");
  write("free", known ? free : "unknown");
  // Lines are rows, which the server knew when it made the page: a socket that can't tell of them changes nothing.
  if (values.some((value) => value.queued === null)) return;
  write("queued", sum(values.map((value) => value.queued ?? 0)));
  followLines(new Map(store.names.map((name) => [name, store.get(name)?.queued ?? 0])));
}

/** @param {number[]} numbers */
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** @param {string} id @param {string | number} text */
function write(id, text) {
  const place = document.getElementById(id);
  if (place && place.textContent !== String(text)) place.textContent = String(text);
}

/** What follows for the longest wait. @param {Map<string, number>} now */
function followLines(now) {
  const shown = document.getElementById("oldest");
  const before = lines;
  lines = now;
  if (!shown) return;
  const waiting = [...now].filter(([, queued]) => queued > 0);
  if (!waiting.length) return show(null, null);
  const agent = shown.dataset.agent;
  if (agent === undefined) {
    // A line that was empty begins now; one of which nothing was known began at some time before.
    const begun = before.size ? waiting.find(([name]) => (before.get(name) ?? 0) === 0) : undefined;
    if (begun && waiting.every(([name]) => (before.get(name) ?? 0) === 0)) show(begun[0], new Date());
    else ask();
  } else if ((now.get(agent) ?? 0) < (before.get(agent) ?? 0)) ask();
}

/** @param {string | null} agent @param {Date | null} since */
function show(agent, since) {
  const shown = /** @type {HTMLElement} */ (document.getElementById("oldest"));
  if (shown.dataset.agent === undefined && agent === null) return;
  const time = since && html`<time datetime="${since.toISOString()}" data-local="age"></time>`;
  const fresh = agent ? html`<dd class="figure__value" id="oldest" data-agent="${agent}">${time}</dd>` : html`<dd class="figure__value" id="oldest">none</dd>`;
  shown.replaceWith(element(fresh));
  localise(document);
}

function ask() {
  due ??= window.setTimeout(async () => {
    due = undefined;
    askedAt = performance.now();
    const text = await fetchPage("/dashboard/oldest-wait/");
    if (text === null) return;
    const fresh = new DOMParser().parseFromString(`<dl>${text}</dl>`, "text/html").getElementById("oldest");
    if (fresh) document.getElementById("oldest")?.replaceWith(fresh);
    localise(document);
  }, Math.max(0, askedAt + ASK_EVERY_MS - performance.now()));
}
