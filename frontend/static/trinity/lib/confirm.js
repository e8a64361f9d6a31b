// @ts-check
import { element, html } from "./html.js";

/**
 * Asks before something that can't be taken back; Escape and the other button mean no.
 * @param {{title: string, text?: string, action: string, keep?: string, bad?: boolean}} question
 *   `action`: what the button does, in words; `keep`: the way out
 * @returns {Promise<boolean>}
 */
export function confirmed({ title, text = "", action, keep = "Keep it as it is", bad = true }) {
  const dialog = /** @type {HTMLDialogElement} */ (
    element(html`<dialog class="dialog" aria-labelledby="confirm-title" aria-describedby="confirm-text">
      <form method="dialog">
        <h2 id="confirm-title">${title}</h2>
        <p id="confirm-text">${text}</p>
        <p class="form__foot">
          <button class="button ${bad ? "button--bad" : ""}" value="yes">${action}</button>
          <button class="button button--quiet" value="no" autofocus>${keep}</button>
        </p>
      </form>
    </dialog>`)
  );
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    dialog.showModal();
  });
}
