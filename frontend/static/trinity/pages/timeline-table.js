// @ts-check
/** What is in view as a table, and in one sentence. */
import { element, html } from "../lib/html.js";
import { moment } from "./timeline-axis.js";
import { ranOf, statusOf, waitedOf } from "./timeline-card.js";
/** @typedef {import("./timeline-lanes.js").Run} Run */
/** @typedef {import("./timeline-data.js").History} History */

const MOST_ROWS = 200;

/** Those that ran or waited between two moments, the last one first. @param {History} history @param {string[]} names @param {number} from @param {number} to @returns {Run[]} */
export function runsBetween(history, names, from, to) {
  /** @type {Run[]} */
  const found = [];
  for (const name of names) {
    for (const lane of history.lanesOf(name)?.lanes.values() ?? []) {
      const [first, last] = lane.between(from, to);
      for (let place = first; place < last; place += 1) if (lane.ends[place] > from && lane.queued[place] < to) found.push(lane.runs[place]);
    }
  }
  return found;
}

/** @param {History} history @param {string[]} names @param {number} from @param {number} to */
export function summaryOf(history, names, from, to) {
  const counts = /** @type {Map<string, number>} */ (new Map());
  let all = 0;
  for (const name of names) {
    for (const lane of history.lanesOf(name)?.lanes.values() ?? []) {
      const [first, last] = lane.between(from, to);
      for (let place = first; place < last; place += 1) {
        if (lane.ends[place] <= from || lane.queued[place] >= to) continue;
        const status = statusOf(lane.runs[place]);
        counts.set(status, (counts.get(status) ?? 0) + 1);
        all += 1;
      }
    }
  }
  const parts = [...counts].map(([status, count]) => `${count} ${status}`);
  const agents = `${names.length} ${names.length === 1 ? "agent" : "agents"}`;
  return `From ${moment(from)} to ${moment(to)}: ${agents}, ${all} ${all === 1 ? "execution" : "executions"}${parts.length ? ` (${parts.join(", ")})` : ""}.`;
}

/** @param {HTMLElement} into @param {History} history @param {string[]} names @param {number} from @param {number} to */
export function fillTable(into, history, names, from, to) {
  const runs = runsBetween(history, names, from, to).sort((a, b) => b.queued - a.queued);
  const { now } = history;
  const more = runs.length - MOST_ROWS;
  into.replaceChildren(
    element(html`<div class="scroll" role="group" aria-label="Executions in view" tabindex="0"><table class="table">
      <thead><tr><th scope="col">Agent</th><th scope="col">Slot</th><th scope="col">Status</th><th scope="col">Execution</th><th scope="col">In line</th>
        <th scope="col" class="table__end">Waited</th><th scope="col" class="table__end">Ran</th></tr></thead>
      <tbody>${runs.slice(0, MOST_ROWS).map(
        (run) => html`<tr><th scope="row">${run.agent}</th><td>${run.slot ?? ""}</td>
          <td><span class="badge" data-state="${run.status}">${statusOf(run)}</span>${run.code ? html` <code>${run.code}</code>` : ""}</td>
          <td><a href="/executions/${run.id}/" dir="auto">${run.message || run.id}</a></td><td><time>${moment(run.queued)}</time></td>
          <td class="table__end">${waitedOf(run, now)}</td><td class="table__end">${run.started === null ? "" : ranOf(run, now)}</td></tr>`,
      )}</tbody></table>
      ${runs.length ? "" : html`<p class="quiet">Nothing ran or waited then.</p>`}
      ${more > 0 ? html`<p class="quiet">and ${more} more; zoom in to see them</p>` : ""}</div>`),
  );
}
