// @ts-check
/** Shows one execution's log as it grows, in any page. */
import { EventStream } from "../elements/event-stream.js";
import { ExecutionSocket } from "../state/execution-socket.js";

const WAITS = /** @type {Record<string, string>} */ ({
  paused: "its agent, or the whole fleet, is paused", session: "another one of its session comes first",
  fleet: "the whole fleet is at its cap", ceiling: "at the ceiling of all limits",
  slot: "for a free slot", worker: "for a worker to take it",
});
const LINES = /** @type {Record<string, string>} */ ({
  connecting: "Connecting…", live: "Live", polling: "Live (by polling)", waiting: "Reconnecting…", paused: "Paused while hidden", ended: "Ended",
});

/**
 * Follows the execution inside `container`, from entry `after` on, until it ends or `stop()` is called.
 *
 * `onExecution` is told each new state of the execution (as `GET /api/executions/{id}/`, without the long texts), `onEnd` its end.
 * @param {HTMLElement} container @param {string} id
 * @param {{after?: number, onExecution?: (execution: Record<string, any>) => void, onEnd?: () => void}} [options]
 */
export function watchExecution(container, id, { after = 0, onExecution, onEnd } = {}) {
  const line = document.createElement("p");
  line.className = "events__line";
  const stream = /** @type {EventStream} */ (document.createElement("event-stream"));
  stream.placeholder = "Nothing was said yet.";
  container.replaceChildren(line, stream);
  const socket = new ExecutionSocket(id, { after });
  socket.addEventListener("status", (event) => showLine(line, /** @type {CustomEvent} */ (event).detail));
  socket.addEventListener("entries", (event) => stream.add(/** @type {CustomEvent} */ (event).detail.entries));
  socket.addEventListener("execution", (event) => {
    const { execution } = /** @type {CustomEvent} */ (event).detail;
    stream.placeholder = placeholderOf(execution);
    onExecution?.(execution);
  });
  socket.addEventListener("end", () => onEnd?.());
  socket.start();
  return { stop: () => socket.stop() };
}

/** @param {HTMLElement} line @param {{state: string, code?: number}} status */
function showLine(line, { state, code }) {
  if (line.dataset.state === state && state !== "refused") return;
  line.dataset.state = state;
  if (code === 4401) line.innerHTML = `Signed out: <a href="/login/?next=${encodeURIComponent(location.pathname)}">sign in</a> to go on watching`;
  else line.textContent = state === "refused" ? "Can't be watched: it is gone, or no longer yours to see" : (LINES[state] ?? "");
}

/** @param {Record<string, any>} execution */
function placeholderOf({ status, waiting_for: reason, queue_position: place }) {
  if (status === "queued") return `In line${place ? ` at place ${place}` : ""}; waiting: ${WAITS[reason] ?? "for its turn"}.`;
  if (reason === "worker") return `Has a slot; waiting ${WAITS.worker}.`;
  return status === "running" ? "Running; nothing was said yet." : "It said nothing.";
}
