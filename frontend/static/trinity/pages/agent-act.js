// @ts-check
/** How an agent's page does what its buttons say. */
import { acting } from "../lib/say.js";

/** @typedef {import("./agent-renewal.js").Renewal} Renewal */

/**
 * Runs what a button does and renews the page, before the button may be pressed again; a refusal is said.
 * @template T @param {Renewal} renewal @param {HTMLButtonElement} button @param {() => Promise<T>} work
 * @returns {Promise<T | undefined>} undefined: refused
 */
export async function act(renewal, button, work) {
  const place = document.activeElement === button ? { id: button.id, part: button.closest("[data-part]")?.id ?? "" } : null;
  const done = await acting(button, async () => {
    try {
      return await work();
    } finally {
      await renewal.now();
    }
  });
  // A button that rests loses the focus, one that was renewed away as well: the keyboard must not lose its place for that.
  if (place && (document.activeElement === null || document.activeElement === document.body)) refocus(button, place);
  return done;
}

/** @param {HTMLButtonElement} button @param {{id: string, part: string}} place */
function refocus(button, { id, part }) {
  const same = button.isConnected ? button : document.getElementById(id);
  const next = same ?? document.getElementById(part)?.querySelector("[tabindex]");
  /** @type {HTMLElement | null | undefined} */ (next)?.focus({ preventScroll: true });
}
