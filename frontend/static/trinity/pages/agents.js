// @ts-check
/** The tiles: all of them live, without a request beside the socket. */
import { element, html } from "../lib/html.js";
import { follow } from "./live.js";

const tiles = /** @type {HTMLElement} */ (document.getElementById("tiles"));
const store = follow();

store.addEventListener("change", () => {
  for (const tile of tiles.querySelectorAll("[data-agent]")) if (!store.get(tile.getAttribute("data-agent") ?? "")) tile.remove();
  for (const name of store.names) if (!tiles.querySelector(`[data-agent="${CSS.escape(name)}"]`)) place(name);
  /** @type {HTMLElement} */ (document.getElementById("empty")).hidden = store.names.length > 0;
  /** @type {HTMLElement} */ (document.getElementById("unknown")).hidden = !store.names.some((name) => store.get(name)?.active === null);
});

/** Puts an agent that is new to the page in its place by name. @param {string} name */
function place(name) {
  const tile = element(html`<li class="tile" data-agent="${name}">
    <div class="tile__meter"><capacity-meter agent="${name}" height="48" width="6" count></capacity-meter></div>
    <div class="tile__text"><h2 class="tile__name"><a href="/agents/${encodeURIComponent(name)}/">${name}</a></h2></div>
  </li>`);
  const next = [...tiles.children].find((other) => (other.getAttribute("data-agent") ?? "") > name);
  tiles.insertBefore(tile, next ?? null);
  /** @type {import("../elements/capacity-meter.js").CapacityMeter} */ (tile.querySelector("capacity-meter")).show(store.get(name));
}
