// @ts-check
/** One execution's page: its events by a socket of its own, everything else renewed when its state changes. */
import { say } from "../lib/say.js";
import { actOnRows } from "./execution-acts.js";
import { countAges, localise } from "./times.js";
import { watchExecution } from "./watch.js";

const work = /** @type {HTMLElement} */ (document.getElementById("work"));
const events = /** @type {HTMLElement} */ (document.getElementById("events"));

// -- Renewal
let due = false;
let busy = false;

async function renew() {
  due = true;
  if (busy) return;
  busy = true;
  while (due) {
    due = false;
    const response = await fetch(work.dataset.src ?? "", { credentials: "same-origin", redirect: "error" }).catch(() => null);
    // Whatever went wrong, the socket's next word tries again.
    if (response?.ok) replaceWork(await response.text());
  }
  busy = false;
}

/** @param {string} markup rendered and escaped by the server */
function replaceWork(markup) {
  const focused = document.activeElement?.id;
  const open = [...work.querySelectorAll("details[open]")].map((one) => one.id);
  work.innerHTML = markup;
  localise(work);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

/** What the rest of the page shows of a state. @param {Record<string, any>} execution */
const seen = (execution) => JSON.stringify([execution.status, execution.started_at, execution.cancel_requested_at, execution.queue_position, execution.waiting_for, execution.estimated_start]);

const ENDS = /** @type {Record<string, string>} */ ({ success: "It has succeeded.", failed: "It has failed.", cancelled: "It was cancelled." });
let told = "";
watchExecution(events, events.dataset.execution ?? "", {
  onExecution: (execution) => {
    const now = seen(execution);
    if (now !== told) void renew();
    // Not of one that had ended before anybody looked.
    if (told && now !== told && ENDS[execution.status]) say(ENDS[execution.status], execution.status === "failed" ? "bad" : "good");
    told = now;
  },
});
actOnRows(work, () => void renew());

work.addEventListener("click", async (event) => {
  const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-copy]"));
  if (!button) return;
  const text = document.getElementById(button.dataset.copy ?? "")?.textContent ?? "";
  await navigator.clipboard.writeText(text).then(
    () => say("Copied."),
    () => say("The browser didn't let the page copy. Select the text instead.", "bad"),
  );
});

localise(work);
countAges();
