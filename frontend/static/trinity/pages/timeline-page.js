// @ts-check
/** A page with a timeline and nothing else that is live. */
import { follow } from "./live.js";
import { startTimeline } from "./timeline.js";

const root = /** @type {HTMLElement} */ (document.querySelector("[data-timeline]"));
startTimeline(root, follow(root.dataset.agent ? { agents: [root.dataset.agent] } : {}));
