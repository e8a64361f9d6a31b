// @ts-check
/** Limits set in the list: steps closer together than a moment are one change, made to the value its reader saw. */
import { Refused, get, put, tagOf } from "../lib/api.js";
import { say } from "../lib/say.js";

const SEND_AFTER_MS = 400;
/** @type {WeakMap<HTMLInputElement, number>} */
const timers = new WeakMap();

/** Looks after every stepper of the page, those to come as well. */
export function bindLimits() {
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-step]") : null;
    const field = button?.parentElement?.querySelector("input");
    if (button && field) step(field, Number(button.getAttribute("data-step")));
  });
  document.addEventListener("change", (event) => {
    const field = event.target;
    if (field instanceof HTMLInputElement && field.closest("[data-stepper]")) sendSoon(field, 0);
  });
}

/** @param {HTMLInputElement} field @param {number} by */
function step(field, by) {
  const wanted = Math.min(Number(field.max), Math.max(Number(field.min), Number(field.value) + by));
  if (String(wanted) === field.value) return say(by > 0 ? `The ceiling is ${field.max}.` : "The least is 1.", "bad");
  field.value = String(wanted);
  sendSoon(field, SEND_AFTER_MS);
}

/** @param {HTMLInputElement} field @param {number} after */
function sendSoon(field, after) {
  clearTimeout(timers.get(field));
  field.dataset.due = "";
  timers.set(field, window.setTimeout(() => send(field), after));
}

/** @param {HTMLInputElement} field */
async function send(field) {
  const row = /** @type {HTMLElement} */ (field.closest("[data-agent]"));
  const stepper = /** @type {HTMLElement} */ (field.closest("[data-stepper]"));
  const wanted = field.value.trim() === "" ? null : Number(field.value);
  try {
    const version = await set(row, wanted, stepper.dataset.version ?? "");
    if (version === null) return;
    stepper.dataset.version = version;
    row.dataset.stored = String(wanted);
    say(`The limit of ${row.dataset.agent} is ${wanted} now.`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    field.value = row.dataset.stored ?? "";
    say(error.message, "bad");
  } finally {
    delete field.dataset.due;
  }
}

/**
 * Changes the limit, unless it is no longer what the row shows: then the row shows what it is.
 * @param {HTMLElement} row @param {number | null} wanted @param {string} version @returns {Promise<string | null>} the new version; null: it was changed meanwhile
 */
async function set(row, wanted, version) {
  const path = `/api/agents/${encodeURIComponent(row.dataset.agent ?? "")}/capacity`;
  const change = (/** @type {string} */ seen) => put(path, { max_parallel_tasks: wanted }, { "If-Match": `"${seen}"` });
  try {
    return versionOf(await change(version));
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 412) throw error;
  }
  const now = await get(path);
  // Some other setting was changed: the limit is the one that its reader saw.
  if (String(now.max_parallel_tasks) === row.dataset.stored) return versionOf(await change(versionOf(now)));
  showConflict(row, now);
  return null;
}

/** @param {HTMLElement} row @param {Record<string, any>} now */
function showConflict(row, now) {
  const stepper = /** @type {HTMLElement} */ (row.querySelector("[data-stepper]"));
  stepper.dataset.version = versionOf(now);
  row.dataset.stored = now.max_parallel_tasks;
  /** @type {HTMLInputElement} */ (stepper.querySelector("input")).value = now.max_parallel_tasks;
  say(`${now.changed_by ?? "Somebody"} has set the limit of ${row.dataset.agent} to ${now.max_parallel_tasks} meanwhile. Yours was not taken.`, "bad");
}

/** @param {Record<string, any>} answer */
const versionOf = (answer) => (tagOf(answer) ?? "").replaceAll('"', "");
