// @ts-check
/** The dashboard's timeline, on the page's one store. */
import { store } from "./dashboard.js";
import { startTimeline } from "./timeline-board.js";

const root = document.getElementById("timeline");
if (root) startTimeline(root, store);
