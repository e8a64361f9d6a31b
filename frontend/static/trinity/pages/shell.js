// @ts-check
/** What every page has: keys that lead about. */

/** After `g`. */
const PLACES = /** @type {Record<string, string>} */ ({ d: "/", a: "/agents/", e: "/executions/" });
const GO_WITHIN_MS = 1500;
let goneAt = 0;

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key === "g") goneAt = event.timeStamp;
  else if (event.timeStamp - goneAt < GO_WITHIN_MS && PLACES[event.key]) location.assign(PLACES[event.key]);
});

/** @param {EventTarget | null} target */
function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}
