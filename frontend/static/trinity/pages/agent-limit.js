// @ts-check
/** The limit, by stepper, for good or for a time: written only over what was seen. */
import { Refused, put } from "../lib/api.js";
import { say } from "../lib/say.js";
import { act } from "./agent-act.js";

/** @typedef {import("./agent-renewal.js").Renewal} Renewal */

const HOUR_MS = 3_600_000;
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** @param {string} id @returns {any} */
const at = (id) => document.getElementById(id);

/** The settings as the server showed them last. */
const shown = () => /** @type {HTMLElement} */ (at("capacity")).dataset;

/** Sets up the form, where the reader has one. @param {string} agent @param {Renewal} renewal */
export function editLimit(agent, renewal) {
  const form = /** @type {HTMLFormElement | null} */ (at("limit"));
  document.addEventListener("click", (event) => {
    const button = /** @type {Element} */ (event.target).closest("#end-override");
    if (button) void endOverride(agent, renewal, /** @type {HTMLButtonElement} */ (button));
  });
  if (!form) return;
  /** What the reader changes: they saw these. */
  let seen = { ...shown() };
  const fields = { limit: at("limit-number"), depth: at("limit-depth"), timeout: at("limit-timeout") };
  const span = /** @type {HTMLSelectElement} */ (at("limit-span"));

  const usual = () => (seen.until ? "same" : "good");
  const touched = () => fields.limit.value !== seen.limit || fields.depth.value !== seen.depth || fields.timeout.value !== seen.timeout || span.value !== usual();

  function take() {
    seen = { ...shown() };
    fields.limit.max = seen.ceiling;
    at("limit-ceiling").textContent = seen.ceiling;
    for (const [name, field] of Object.entries(fields)) field.value = seen[name];
    const same = /** @type {HTMLOptionElement} */ (span.querySelector("[value=same]"));
    same.hidden = same.disabled = !seen.until;
    if (seen.until) same.textContent = `As now, until ${moment.format(new Date(seen.until))}`;
    span.value = usual();
    look();
  }

  function look() {
    at("limit-until-field").hidden = span.value !== "own";
    at("limit-reset").hidden = !touched();
    const moved = touched() && seen.version !== shown().version;
    at("limit-moved").hidden = !moved;
    if (moved) at("limit-moved").textContent = `Changed meanwhile${shown().by ? ` by ${shown().by}` : ""}: the limit is ${shown().limit} now. “Take back” shows it.`;
    for (const button of form.querySelectorAll("[data-step]")) button.disabled = stepped(button) === Number(fields.limit.value);
  }

  /** @param {HTMLElement} button */
  function stepped(button) {
    const now = Math.trunc(Number(fields.limit.value)) || 0;
    return Math.min(Number(seen.ceiling), Math.max(1, now + Number(button.dataset.step)));
  }

  async function save() {
    const body = wanted(fields, span.value, seen.until ?? "");
    if (typeof body === "string") return say(body, "bad");
    const outcome = await act(renewal, at("limit-save"), () => write(agent, body, seen.version ?? ""));
    if (outcome === "written") say(`The limit is ${body.max_parallel_tasks}${body.override_until ? ` until ${moment.format(new Date(body.override_until))}` : ""}.`);
    if (outcome === "moved") say(`Not written: somebody changed the settings meanwhile. The limit is ${shown().limit} now, yours was ${body.max_parallel_tasks}.`, "bad");
    if (outcome) take();
  }

  form.addEventListener("click", (event) => {
    const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-step]"));
    if (!button) return;
    fields.limit.value = String(stepped(button));
    look();
    // A button that rests loses the focus, and the keyboard its place.
    if (/** @type {HTMLButtonElement} */ (button).disabled) fields.limit.focus();
  });
  form.addEventListener("input", look);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!at("limit-save").disabled) void save();
  });
  at("limit-reset").addEventListener("click", () => {
    take();
    fields.limit.focus();
  });
  renewal.addEventListener("renewed", () => (touched() ? look() : take()));
  take();
}

/**
 * The body to send, or why there is none.
 * @param {Record<string, HTMLInputElement>} fields @param {string} span @param {string} until the end of what holds now
 */
function wanted(fields, span, until) {
  for (const [name, field] of Object.entries(fields)) {
    const valid = field.checkValidity() && /^\d+$/.test(field.value);
    field.toggleAttribute("aria-invalid", false);
    if (valid) continue;
    field.setAttribute("aria-invalid", "true");
    if (name !== "limit") at("limit-more").open = true;
    field.focus();
    return `Give a whole number from ${field.min} to ${field.max}.`;
  }
  /** @type {Record<string, any>} */
  const body = { max_parallel_tasks: Number(fields.limit.value), max_backlog_depth: Number(fields.depth.value), execution_timeout_seconds: Number(fields.timeout.value) };
  if (span === "good") return body;
  const end = span === "same" ? new Date(until) : endOf(span, at("limit-until").value);
  if (Number.isNaN(end.getTime()) || end.getTime() <= Date.now()) {
    at("limit-until").focus();
    return "Give a time that is yet to come.";
  }
  return { ...body, override_until: end.toISOString() };
}

/** When the span ends, in the reader's own zone. @param {string} span @param {string} own */
function endOf(span, own) {
  if (span === "own") return new Date(own);
  if (span !== "morning") return new Date(Date.now() + HOUR_MS * (span === "4h" ? 4 : 1));
  const morning = new Date();
  morning.setDate(morning.getDate() + 1);
  morning.setHours(8, 0, 0, 0);
  return morning;
}

/** @param {string} agent @param {Record<string, any>} body @param {string} version @returns {Promise<"written" | "moved">} */
async function write(agent, body, version) {
  try {
    await put(`/api/agents/${encodeURIComponent(agent)}/capacity`, body, { "If-Match": `"${version}"` });
    return "written";
  } catch (error) {
    if (error instanceof Refused && error.status === 412) return "moved";
    throw error;
  }
}

/** @param {string} agent @param {Renewal} renewal @param {HTMLButtonElement} button */
async function endOverride(agent, renewal, button) {
  const { base, version } = shown();
  const outcome = await act(renewal, button, () => write(agent, { max_parallel_tasks: Number(base) }, version ?? ""));
  if (outcome === "written") say(`The limit is ${base} again.`);
  if (outcome === "moved") say(`Not ended: somebody changed the settings meanwhile. The limit is ${shown().limit} now.`, "bad");
}
