// @ts-check
/** Pause and resume, cancel, clear, release. */
import { post } from "../lib/api.js";
import { confirmed } from "../lib/confirm.js";
import { say } from "../lib/say.js";
import { act } from "./agent-act.js";
import { askRelease } from "./agent-release.js";

/** @typedef {import("./agent-renewal.js").Renewal} Renewal */

/** Listens to the buttons, also to those that are made later. @param {string} agent @param {Renewal} renewal */
export function takeControl(agent, renewal) {
  const base = `/api/agents/${encodeURIComponent(agent)}`;
  /** @type {Record<string, (button: HTMLButtonElement) => Promise<unknown>>} */
  const controls = {
    "[data-control]": (button) => setPaused(base, renewal, button),
    "[data-cancel]": (button) => cancel(renewal, button),
    "[data-release]": (button) => release(base, renewal, button),
    "#clear": (button) => clear(agent, base, renewal, button),
  };
  document.getElementById("agent")?.addEventListener("click", (event) => {
    for (const [selector, control] of Object.entries(controls)) {
      const button = /** @type {HTMLButtonElement | null} */ (/** @type {Element} */ (event.target).closest(selector));
      if (button) void control(button);
    }
  });
}

/** @param {string} base @param {Renewal} renewal @param {HTMLButtonElement} button */
async function setPaused(base, renewal, button) {
  const answer = await act(renewal, button, () => post(`${base}/${button.dataset.control}/`, {}));
  if (!answer) return;
  if (answer.paused) say("Paused: nothing new starts, what runs goes on.");
  else say(answer.fleet_paused ? "Resumed; the whole fleet is still paused." : "Resumed: its line starts.");
}

/** @param {Renewal} renewal @param {HTMLButtonElement} button */
async function cancel(renewal, button) {
  const running = button.hasAttribute("data-running");
  const message = button.closest("tr")?.querySelector(".message")?.textContent?.trim() ?? "";
  const consequence = running ? "It is running; its work so far is lost." : "It waits, and never runs then.";
  const sure = await confirmed({
    title: "Cancel this execution?", text: message ? `“${cut(message)}” ${consequence}` : consequence, action: "Cancel the execution", keep: "Keep it",
  });
  if (!sure) return;
  const answer = await act(renewal, button, () => post(`/api/executions/${button.dataset.cancel}/cancel/`, {}));
  if (answer) say(answer.status === "cancelled" ? "Cancelled." : "It is being cancelled: its work is stopped first.");
}

/** @param {string} agent @param {string} base @param {Renewal} renewal @param {HTMLButtonElement} button */
async function clear(agent, base, renewal, button) {
  const count = Number(button.dataset.count);
  const them = count === 1 ? "1 waiting execution" : `${count} waiting executions`;
  const sure = await confirmed({
    title: `Cancel ${them} of ${agent}?`, text: "None of them will run, and whoever waits for a result is told. What runs goes on. More may wait by the time you say yes; those go too.",
    action: `Cancel ${them}`, keep: "Keep them",
  });
  if (!sure) return;
  const answer = await act(renewal, button, () => post(`${base}/queue/clear/`, {}));
  if (answer) say(answer.cleared === 1 ? "1 execution cancelled." : `${answer.cleared} executions cancelled.`);
}

/** @param {string} base @param {Renewal} renewal @param {HTMLButtonElement} button */
async function release(base, renewal, button) {
  const { release: id, slot, state } = button.dataset;
  const how = await askRelease({ slot: slot ?? "", state: state ?? "" });
  if (!how) return;
  const answer = await act(renewal, button, () => post(`${base}/slots/release/`, { execution_id: id, force: how === "force" }));
  if (answer) say(`${answer.message}.`, answer.limit_may_be_exceeded ? "bad" : "good");
}

/** @param {string} text */
function cut(text) {
  return text.length <= 80 ? text : `${text.slice(0, 80)}…`;
}
