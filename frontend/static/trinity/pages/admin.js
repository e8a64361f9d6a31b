// @ts-check
/** The admin's meters, and the numbers and words in the columns beside them. */
import { follow } from "./live.js";

const store = follow();
store.addEventListener("change", () => {
  for (const cell of document.querySelectorAll("[data-used]")) {
    const capacity = store.get(cell.getAttribute("data-used") ?? "");
    if (capacity) cell.textContent = capacity.active === null ? "unknown" : `${capacity.active}/${capacity.max}`;
  }
  for (const cell of document.querySelectorAll("[data-waiting]")) {
    const capacity = store.get(cell.getAttribute("data-waiting") ?? "");
    if (capacity && capacity.queued !== null) cell.textContent = String(capacity.queued);
  }
  for (const cell of document.querySelectorAll("[data-paused]")) {
    const capacity = store.get(cell.getAttribute("data-paused") ?? "");
    // Whether it is the fleet's pause only the server's page knows: that word stays for as long as it lasts.
    if (capacity) cell.textContent = capacity.paused ? cell.textContent || "Paused" : "";
  }
});
