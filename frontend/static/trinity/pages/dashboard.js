// @ts-check
/** The dashboard: figures and rows kept right by one socket; searches, orders and pages without loading all anew. */
import { post } from "../lib/api.js";
import { confirmed } from "../lib/confirm.js";
import { fetchPage } from "../lib/session.js";
import { acting, say } from "../lib/say.js";
import { showFigures } from "./figures.js";
import { bindList, showRows } from "./agent-list.js";
import { follow } from "./live.js";
import { bindLimits } from "./limits.js";
import { countAges, localise } from "./times.js";

const TYPED_AFTER_MS = 300;

/** The page's one store: the timeline reads it as well. */
export const store = follow();

store.addEventListener("change", (event) => {
  showFigures(store);
  showRows(store, /** @type {CustomEvent} */ (event).detail.names);
  const unknown = store.names.some((name) => store.get(name)?.active === null);
  /** @type {HTMLElement} */ (document.getElementById("unknown")).hidden = !unknown;
});

// -- What is shown is in the address
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("search"));
let latest = 0;

/** Shows the list of another address; the browser itself goes there where that fails. @param {string} address @param {boolean} [remember] */
async function go(address, remember = true) {
  const mine = ++latest;
  const page = await fetchPage(`/${address}`);
  if (mine !== latest) return;
  const list = page && new DOMParser().parseFromString(page, "text/html").getElementById("list");
  if (!list) return say("The list can't be had right now.", "bad");
  const focused = document.activeElement?.closest("[data-go]")?.textContent;
  document.getElementById("list")?.replaceWith(list);
  if (remember) history.pushState(null, "", address);
  localise(list);
  bindList(store);
  showRows(store, store.names);
  const again = [...list.querySelectorAll("a[data-go]")].find((link) => link.textContent === focused);
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/** @returns {string} */
function searched() {
  const kept = new URLSearchParams();
  const query = String(new FormData(/** @type {HTMLFormElement} */ (form)).get("q")).trim();
  if (query) kept.set("q", query);
  const sort = document.getElementById("list")?.dataset.sort;
  if (sort && sort !== "name") kept.set("sort", sort);
  return `?${kept}`;
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-go]") : null;
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const address = link.getAttribute("href") ?? "?";
  if (form && !new URLSearchParams(address).has("q")) /** @type {HTMLInputElement} */ (form.elements.namedItem("q")).value = "";
  go(address);
});

if (form) {
  /** @type {number | undefined} */
  let timer;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => go(searched()), TYPED_AFTER_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    go(searched());
  });
  window.addEventListener("popstate", () => {
    /** @type {HTMLInputElement} */ (form.elements.namedItem("q")).value = new URLSearchParams(location.search).get("q") ?? "";
    go(location.search || "?", false);
  });
}

// -- Pausing
document.addEventListener("click", async (event) => {
  const button = /** @type {HTMLButtonElement | null} */ (event.target instanceof Element ? event.target.closest("[data-pause]") : null);
  const name = button?.closest("[data-agent]")?.getAttribute("data-agent");
  if (!button || !name) return;
  const verb = button.dataset.pause;
  const told = await acting(button, () => post(`/api/agents/${encodeURIComponent(name)}/${verb}/`, {}));
  if (!told) return;
  say(told.paused ? `${name} is paused: what runs goes on.` : told.fleet_paused ? `${name} goes on once the fleet does.` : `${name} goes on.`);
  setPauseButton(button, name, told.paused);
});

/** @param {HTMLButtonElement} button @param {string} name @param {boolean} paused */
function setPauseButton(button, name, paused) {
  button.dataset.pause = paused ? "resume" : "pause";
  button.textContent = paused ? "Resume" : "Pause";
  button.setAttribute("aria-label", `${button.textContent} ${name}`);
  button.focus({ preventScroll: true });
}

const all = /** @type {HTMLButtonElement | null} */ (document.getElementById("pause-all"));
all?.addEventListener("click", async () => {
  const pausing = all.dataset.state !== "paused";
  const question = { title: "Pause every agent?", text: "What runs goes on; nothing new of any agent starts until you resume all.", action: "Pause all" };
  if (pausing && !(await confirmed(question))) return;
  const told = await acting(all, () => post(`/api/fleet/${pausing ? "pause" : "resume"}/`, {}));
  if (!told) return;
  all.dataset.state = told.paused ? "paused" : "running";
  all.textContent = told.paused ? "Resume all" : "Pause all";
  /** @type {HTMLElement} */ (document.getElementById("fleet-paused")).hidden = !told.paused;
  say(told.paused ? "The whole fleet is paused." : "The fleet goes on, but for agents that are paused themselves.");
  all.focus();
});

bindList(store);
bindLimits();
localise(document);
countAges();
