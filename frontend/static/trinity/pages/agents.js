// @ts-check
/** The tiles: all of them live, without a request beside the socket. */
import { element, html } from "../lib/html.js";
import { HEALTH, healthOf } from "../state/health.js";
import { follow } from "./live.js";

const tiles = /** @type {HTMLElement} */ (document.getElementById("tiles"));
/** By name: looked for anew they would cost a thousand times a thousand looks. @type {Map<string, HTMLElement>} */
const placed = new Map([...tiles.children].map((tile) => [tile.getAttribute("data-agent") ?? "", /** @type {HTMLElement} */ (tile)]));
const store = follow();

store.addEventListener("change", (event) => {
  for (const name of /** @type {CustomEvent} */ (event).detail.names) show(name);
  /** @type {HTMLElement} */ (document.getElementById("empty")).hidden = store.names.length > 0;
  /** @type {HTMLElement} */ (document.getElementById("unknown")).hidden = !store.names.some((name) => store.get(name)?.active === null);
});

/** @param {string} name */
function show(name) {
  const capacity = store.get(name);
  const tile = placed.get(name);
  if (!capacity) {
    tile?.remove();
    placed.delete(name);
  } else if (tile) showHealth(tile, healthOf(capacity));
  else if (tiles.dataset.found === undefined) place(name);
}

/** @param {HTMLElement} tile @param {import("../state/health.js").Health} health */
function showHealth(tile, health) {
  const word = /** @type {HTMLElement} */ (tile.querySelector(".health"));
  if (word.dataset.health === health) return;
  word.dataset.health = health;
  word.textContent = HEALTH[health];
}

/** Puts an agent that is new to the page in its place by name. @param {string} name */
function place(name) {
  const tile = /** @type {HTMLElement} */ (
    element(html`<li class="tile" data-agent="${name}">
      <div class="tile__meter"><capacity-meter agent="${name}" height="48" width="6" count></capacity-meter></div>
      <div class="tile__text">
        <h2 class="tile__name"><a href="/agents/${encodeURIComponent(name)}/">${name}</a></h2>
        <p class="tile__line"><span class="health"></span></p>
      </div>
    </li>`)
  );
  const next = [...tiles.children].find((other) => (other.getAttribute("data-agent") ?? "") > name);
  tiles.insertBefore(tile, next ?? null);
  placed.set(name, tile);
  const capacity = /** @type {import("../state/store.js").Capacity} */ (store.get(name));
  showHealth(tile, healthOf(capacity));
  /** @type {import("../elements/capacity-meter.js").CapacityMeter} */ (tile.querySelector("capacity-meter")).show(capacity);
}
