// @ts-check
/** One agent's page: meter by socket; slots, backlog and executions renewed once a change. */
import { Refused, post } from "../lib/api.js";
import { follow } from "./live.js";
import { countAges, localise } from "./times.js";

/** Changes closer together than this are fetched as one. */
const RENEW_AFTER_MS = 250;

const form = /** @type {HTMLFormElement} */ (document.getElementById("submit"));
const answer = /** @type {HTMLElement} */ (document.getElementById("submit-answer"));
const work = /** @type {HTMLElement} */ (document.getElementById("work"));
const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("confirm"));
const name = form.dataset.agent ?? "";

// -- Renewal
let due = false;
let renewing = false;
/** @type {number | undefined} */
let timer;

function renewSoon() {
  due = true;
  if (timer === undefined && !renewing) timer = window.setTimeout(renew, RENEW_AFTER_MS);
}

async function renew() {
  timer = undefined;
  due = false;
  renewing = true;
  const response = await fetch(work.dataset.src ?? "", { credentials: "same-origin", redirect: "error" }).catch(() => null);
  // Whatever went wrong, the socket's next word tries again.
  if (response?.ok) replaceWork(await response.text());
  renewing = false;
  if (due) renewSoon();
}

/** @param {string} markup rendered and escaped by the server */
function replaceWork(markup) {
  const focused = document.activeElement?.id;
  const scrolled = [...work.querySelectorAll(".scroll")].map((region) => region.scrollLeft);
  work.innerHTML = markup;
  localise(work);
  [...work.querySelectorAll(".scroll")].forEach((region, index) => (region.scrollLeft = scrolled[index] ?? 0));
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

// -- Submit
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("message"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  button.disabled = true;
  try {
    const made = await post(`/api/agents/${encodeURIComponent(name)}/task`, { message: field.value, async_mode: true });
    say(made.status === "queued" ? `Waiting at place ${made.queue_position}.` : "Running.", "good");
    form.reset();
    field.removeAttribute("aria-invalid");
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(error.message, "bad");
    field.setAttribute("aria-invalid", String(error.status === 400));
  } finally {
    button.disabled = false;
    renewSoon();
  }
});

/** @param {string} text @param {"good" | "bad"} state */
function say(text, state) {
  answer.textContent = text;
  answer.dataset.state = state;
}

// -- Cancel
work.addEventListener("click", (event) => {
  const button = /** @type {Element} */ (event.target).closest("[data-cancel]");
  if (!button) return;
  const running = button.hasAttribute("data-running");
  /** @type {HTMLElement} */ (document.getElementById("confirm-text")).textContent = running
    ? "This execution is running. Its work so far is lost when it is cancelled."
    : "This execution waits. It never runs when it is cancelled.";
  dialog.returnValue = "no";
  dialog.dataset.execution = button.getAttribute("data-cancel") ?? "";
  dialog.showModal();
});

dialog.addEventListener("close", async () => {
  if (dialog.returnValue !== "yes") return;
  try {
    await post(`/api/executions/${dialog.dataset.execution}/cancel/`, {});
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(error.message, "bad");
  }
  renewSoon();
});

// -- Live
const rendered = Number(document.querySelector("capacity-meter")?.getAttribute("version"));
let first = true;
const store = follow({ agents: [name] });
store.addEventListener("change", () => {
  const capacity = store.get(name);
  /** @type {HTMLElement} */ (document.getElementById("unknown")).hidden = !capacity || capacity.active !== null;
  // The first snapshot mostly says what the page was made with.
  if (!first || capacity?.version !== rendered) renewSoon();
  first = false;
});
localise(work);
countAges();
