// @ts-check
/** What every page has: keys that lead about, their list, and a word when the browser is offline. */
import { element, html } from "../lib/html.js";

/** After `g`. */
const PLACES = /** @type {Record<string, string>} */ ({ d: "/", a: "/agents/", e: "/executions/" });
const GO_WITHIN_MS = 1500;
/** Single keys disturb who speaks to their computer: they can be switched off. */
const SWITCH = "trinity-keys";
let goneAt = -GO_WITHIN_MS;

/** @type {Record<string, () => void>} */
const KEYS = { "/": toSearch, "?": showKeys };

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (!document.querySelector(".head")) return;
  if (event.key !== "?" && localStorage.getItem(SWITCH) === "off") return;
  if (event.timeStamp - goneAt < GO_WITHIN_MS && PLACES[event.key]) location.assign(PLACES[event.key]);
  else if (event.key === "g") goneAt = event.timeStamp;
  else if (KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

/** @param {EventTarget | null} target */
function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"));
}

function toSearch() {
  /** @type {HTMLInputElement | null} */ (document.querySelector("input[type=search]"))?.select();
  /** @type {HTMLInputElement | null} */ (document.querySelector("input[type=search]"))?.focus();
}

/** A page adds keys of its own by `<template id="keys">` with `<div><dt><dd></div>`. */
function showKeys() {
  const dialog = /** @type {HTMLDialogElement} */ (
    element(html`<dialog class="dialog" aria-labelledby="keys-title">
      <form method="dialog">
        <h2 id="keys-title">Keys</h2>
        <dl class="keys">
          <div><dt><kbd>/</kbd></dt><dd>search</dd></div>
          <div><dt><kbd>g</kbd> <kbd>d</kbd></dt><dd>Dashboard</dd></div>
          <div><dt><kbd>g</kbd> <kbd>a</kbd></dt><dd>Agents</dd></div>
          <div><dt><kbd>g</kbd> <kbd>e</kbd></dt><dd>Executions</dd></div>
          <div><dt><kbd>?</kbd></dt><dd>this list</dd></div>
          <div><dt><kbd>Esc</kbd></dt><dd>closes it</dd></div>
        </dl>
        <label class="choice"><input type="checkbox" name="keys"> Single keys lead about</label>
        <p class="form__foot"><button class="button button--quiet" autofocus>Close</button></p>
      </form>
    </dialog>`)
  );
  const own = /** @type {HTMLTemplateElement | null} */ (document.getElementById("keys"));
  if (own) dialog.querySelector("dl")?.append(own.content.cloneNode(true));
  const box = /** @type {HTMLInputElement} */ (dialog.querySelector("input"));
  box.checked = localStorage.getItem(SWITCH) !== "off";
  box.addEventListener("change", () => localStorage.setItem(SWITCH, box.checked ? "on" : "off"));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

document.getElementById("show-keys")?.addEventListener("click", showKeys);

// -- Offline
function sayOffline() {
  const notice = document.getElementById("offline");
  if (notice) notice.hidden = navigator.onLine;
}
window.addEventListener("online", sayOffline);
window.addEventListener("offline", sayOffline);
sayOffline();
