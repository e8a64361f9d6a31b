// @ts-check
/** The admin's meters, and the numbers in the columns beside them. */
import { follow } from "./live.js";

const store = follow();
store.addEventListener("change", () => {
  for (const cell of document.querySelectorAll("[data-used]")) {
    const capacity = store.get(cell.getAttribute("data-used") ?? "");
    if (capacity) cell.textContent = capacity.active === null ? "unknown" : `${capacity.active}/${capacity.max}`;
  }
  for (const cell of document.querySelectorAll("[data-waiting]")) {
    const capacity = store.get(cell.getAttribute("data-waiting") ?? "");
    if (capacity) cell.textContent = String(capacity.queued ?? 0);
  }
});
