// @ts-check
/** Cancel and retry of one execution, wherever its buttons are. */
import { post } from "../lib/api.js";
import { confirmed } from "../lib/confirm.js";
import { acting, say } from "../lib/say.js";

/**
 * Acts on the clicks of `[data-cancel]` and `[data-retry]` inside `root`; `done` is called after each.
 * @param {HTMLElement} root @param {() => void} done
 */
export function actOnRows(root, done) {
  root.addEventListener("click", async (event) => {
    const button = /** @type {HTMLButtonElement | null} */ (/** @type {Element} */ (event.target).closest("button[data-cancel], button[data-retry]"));
    if (!button) return;
    const { cancel, retry } = button.dataset;
    await acting(button, () => (cancel ? cancelOne(cancel, "running" in button.dataset) : retryOne(retry ?? "")));
    done();
  });
}

/** @param {string} id @param {boolean} running */
async function cancelOne(id, running) {
  const text = running ? "It runs: its work so far is lost." : "It waits: it never runs then.";
  if (!(await confirmed({ title: "Cancel this execution?", text, action: "Cancel the execution", keep: "Keep it" }))) return;
  const { status } = await post(`/api/executions/${id}/cancel/`, {});
  say(status === "cancelled" ? "Cancelled." : "Its work is being stopped.");
}

/** @param {string} id */
async function retryOne(id) {
  const made = await post(`/api/executions/${id}/retry/`, {});
  say(made.queue_position ? `Submitted anew: it waits at place ${made.queue_position}.` : "Submitted anew.");
}
