// @ts-check
import { Refused } from "./api.js";

/** The page's one polite status line (`#said` in the shell). @param {string} text @param {"good" | "bad"} [state] */
export function say(text, state = "good") {
  const line = document.getElementById("said");
  if (!line) return;
  line.dataset.state = state;
  line.textContent = text;
}

/**
 * Runs what a button does: the button rests meanwhile, a refusal of the API is said.
 * @template T @param {HTMLButtonElement | null} button @param {() => Promise<T>} work @returns {Promise<T | undefined>} undefined: refused
 */
export async function acting(button, work) {
  if (button) button.disabled = true;
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    say(error.message, "bad");
    return undefined;
  } finally {
    if (button) button.disabled = false;
  }
}
