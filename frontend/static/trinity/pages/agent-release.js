// @ts-check
import { element, html } from "../lib/html.js";

/**
 * Asks how a slot is to be released; Escape and the other button mean not at all.
 * @param {{slot: string, state: string}} which
 * @returns {Promise<"stop" | "force" | null>}
 */
export function askRelease({ slot, state }) {
  const stuck = state === "lost" || state === "cancelling";
  const dialog = /** @type {HTMLDialogElement} */ (
    element(html`<dialog class="dialog" aria-labelledby="release-title">
      <form method="dialog">
        <h2 id="release-title">Release slot ${slot}?</h2>
        ${stuck && html`<p>${state === "lost" ? "Nobody has said for a while that this run is alive." : "This run was asked to stop and has not stopped yet."}</p>`}
        <fieldset class="choices">
          <legend class="unseen">How</legend>
          <label class="choice"><input type="radio" name="how" value="stop" ${stuck ? "" : "checked"}> <span><strong>When its work has stopped</strong><br>The run is cancelled; the slot is free once it is known to be over. The limit always holds.</span></label>
          <label class="choice"><input type="radio" name="how" value="force" ${stuck ? "checked" : ""}> <span><strong>At once, by force</strong><br>For a slot that is stuck. <span class="message--bad">The work may go on beside what starts in its place, so more may run than the limit allows.</span> The run ends as lost, and a late result counts for nothing.</span></label>
        </fieldset>
        <p class="form__foot">
          <button class="button button--bad" value="yes">Release the slot</button>
          <button class="button button--quiet" value="no" autofocus>Keep it</button>
        </p>
      </form>
    </dialog>`)
  );
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const how = /** @type {HTMLInputElement | null} */ (dialog.querySelector("input:checked"))?.value;
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? (how === "force" ? "force" : "stop") : null);
    });
    dialog.showModal();
  });
}
