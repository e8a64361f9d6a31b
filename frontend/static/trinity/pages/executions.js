// @ts-check
/** The list of executions: its rows kept right and newer ones counted, once a change; cancel and retry, of one and of many. */
import { post } from "../lib/api.js";
import { confirmed } from "../lib/confirm.js";
import { acting, say } from "../lib/say.js";
import { actOnRows } from "./execution-acts.js";
import { follow } from "./live.js";
import { countAges, localise } from "./times.js";

/** Changes closer together than this are fetched as one. */
const RENEW_AFTER_MS = 1_000;

const list = /** @type {HTMLElement} */ (document.getElementById("list"));
const fresh = /** @type {HTMLButtonElement} */ (document.getElementById("new"));
const filters = JSON.parse(list.dataset.filters ?? "{}");

// -- Renewal: rows stay where they are, whatever comes before them
let due = false;
let busy = false;

function renewSoon() {
  due = true;
  if (!busy) void renew();
}

async function renew() {
  busy = true;
  await new Promise((resolve) => setTimeout(resolve, RENEW_AFTER_MS));
  while (due && !document.hidden) {
    due = false;
    await renewOnce();
    await new Promise((resolve) => setTimeout(resolve, RENEW_AFTER_MS));
  }
  busy = false;
}

async function renewOnce() {
  const shown = [...list.querySelectorAll("[data-execution]")].map((row) => row.getAttribute("data-execution"));
  const query = new URLSearchParams(list.dataset.query);
  query.set("ids", shown.join(","));
  if ("first" in list.dataset) query.set("newest", "1");
  if (!shown.length) {
    query.delete("within");
    query.set("since", list.dataset.loaded ?? "");
  }
  const response = await fetch(`${list.dataset.src}?${query}`, { credentials: "same-origin", redirect: "error" }).catch(() => null);
  // Whatever went wrong, the socket's next word tries again.
  if (response?.ok) takeRows(await response.text());
}

/** @param {string} markup rendered and escaped by the server */
function takeRows(markup) {
  const template = document.createElement("template");
  template.innerHTML = markup;
  localise(template.content);
  const focused = document.activeElement?.id;
  for (const row of template.content.querySelectorAll("[data-execution]")) document.getElementById(row.id)?.replaceWith(row);
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
  const newer = Number(template.content.querySelector("table")?.dataset.newer ?? 0);
  fresh.hidden = newer === 0;
  fresh.textContent = `${newer > 99 ? "99+" : newer} new: show`;
}

fresh.addEventListener("click", () => location.assign(`${location.pathname}?${list.dataset.query}`));
document.addEventListener("visibilitychange", () => !document.hidden && renewSoon());

let known = false;
const store = follow();
store.addEventListener("change", () => {
  // The first snapshot says what the page was made with.
  if (known) renewSoon();
  known = true;
});

// -- One
actOnRows(list, renewSoon);

// -- Many
/** @param {string} id */
const button = (id) => /** @type {HTMLButtonElement} */ (document.getElementById(id));
const some = (/** @type {number} */ count) => `${count} execution${count === 1 ? "" : "s"}`;
/** Nothing named: everything that could be meant. @param {string[]} statuses */
const asked = (statuses) => (Object.keys(filters).length ? filters : { status: statuses });
/** @type {HTMLElement} */ (document.getElementById("many")).hidden = false;

button("cancel-many").addEventListener("click", () => acting(button("cancel-many"), cancelMany));
button("retry-many").addEventListener("click", () => acting(button("retry-many"), retryMany));

async function cancelMany() {
  const body = asked(["queued", "running"]);
  const counted = await post("/api/executions/cancel/", { ...body, dry_run: true });
  const count = counted.cancelled + counted.cancelling;
  if (!count) return say("Nothing that matches is yours to cancel.", "bad");
  const text = `${counted.cancelled} wait and never run; ${counted.cancelling} run, and their work so far is lost. It counts for all pages of this list.`;
  if (!(await confirmed({ title: `Cancel ${some(count)}?`, text, action: `Cancel ${some(count)}`, keep: "Keep them" }))) return;
  const done = await post("/api/executions/cancel/", body);
  say(`${some(done.cancelled)} cancelled${done.cancelling ? `, ${done.cancelling} being stopped` : ""}.`);
  renewSoon();
}

async function retryMany() {
  // What is made from now on stays: else a retry that fails at once would be done again by the next call.
  const body = { until: list.dataset.loaded, ...asked(["failed", "cancelled"]) };
  const { retried: count } = await post("/api/executions/retry/", { ...body, dry_run: true });
  if (!count) return say("Nothing that matches can be retried, or all of it was.", "bad");
  const text = "Each is submitted anew, as yours, and waits in line where there is no slot. What was retried before is passed over.";
  if (!(await confirmed({ title: `Retry ${some(count)}?`, text, action: `Retry ${some(count)}`, keep: "Leave them", bad: false }))) return;
  let retried = 0;
  let done;
  do {
    done = await post("/api/executions/retry/", body);
    retried += done.retried;
    say(`${some(retried)} submitted anew${done.left ? ", going on…" : ""}${done.refused ? `; ${done.refused} could not be` : ""}.`, done.refused ? "bad" : "good");
    // Not beyond what was agreed to: more may have failed meanwhile.
  } while (done.left && done.retried && retried < count);
  renewSoon();
}

// -- Filters: times are the reader's in the form, and UTC in the URL
const form = /** @type {HTMLFormElement} */ (document.getElementById("filters"));
const within = /** @type {HTMLSelectElement} */ (document.getElementById("within"));
const between = /** @type {HTMLElement} */ (document.getElementById("between"));
const moments = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll("[data-moment]")]);
/** @type {HTMLOptionElement} */ (document.getElementById("between-option")).hidden = false;

/** @param {HTMLInputElement} field */
const hiddenOf = (field) => /** @type {HTMLInputElement | null} */ (form.querySelector(`input[type=hidden][name=${field.dataset.moment}]`));

for (const field of moments) {
  const sent = hiddenOf(field)?.value;
  if (sent) field.value = localOf(new Date(sent));
}
const showBetween = () => (between.hidden = within.value !== "between");
within.addEventListener("change", showBetween);
showBetween();

/** @param {Date} moment */
function localOf(moment) {
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const query = new URLSearchParams();
  // Fields that say nothing stay out of the URL.
  for (const [name, value] of new FormData(form)) if (value && !["since", "until"].includes(name) && value !== "between") query.append(name, String(value).trim());
  if (within.value === "between") for (const field of moments) if (field.value) query.set(field.dataset.moment ?? "", new Date(field.value).toISOString());
  location.assign(`${form.action}?${query}`);
});

localise(list);
countAges();
