// @ts-check
/**
 * Runs in order of time, found by halving: what of a lane lies in view costs what is in view, whatever the lane holds.
 *
 * @typedef {{id: string, agent: string, slot: number | null, status: string, code: string | null, kind: number, queued: number,
 *   started: number | null, ended: number | null, retryOf: string | null, message: string}} Run  moments in ms since 1970
 */

/** How bars look, the more telling ones later: of bars thinner than a pixel the last one is drawn. */
export const KINDS = ["waiting", "success", "running", "cancelled", "lost", "failed"];
export const WAITING = 0;
const LOST = new Set(["lease_lost", "worker_lost"]);

/** @param {string} status @param {string | null} code */
export function kindOf(status, code) {
  if (status === "queued") return WAITING;
  return KINDS.indexOf(status === "failed" && LOST.has(code ?? "") ? "lost" : status);
}

/** The first place of an ascending array whose value is greater than `value`. @param {Float64Array} values @param {number} value */
export function placeAfter(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** When its bar begins: its start, or the end of a wait that led to none. @param {Run} run */
export const beginOf = (run) => run.started ?? run.ended ?? Infinity;
/** @param {Run} run */
export const endOf = (run) => run.ended ?? Infinity;

/** One slot's runs, or those of an agent that have no slot. */
export class Lane {
  /** @type {Run[]} */
  runs = [];
  begins = new Float64Array();
  ends = new Float64Array();
  queued = new Float64Array();
  kinds = new Uint8Array();
  /** The latest end up to each place, and the earliest wait from each on: both ascend. */
  #reach = new Float64Array();
  #since = new Float64Array();
  #sorted = true;

  /** @param {Run} run */
  add(run) {
    this.runs.push(run);
    this.#sorted = false;
  }

  /** @param {Run} run */
  remove(run) {
    const place = this.runs.indexOf(run);
    if (place >= 0) this.runs.splice(place, 1);
    this.#sorted = false;
  }

  /** Says that one of its runs is not as it was. */
  touch() {
    this.#sorted = false;
  }

  /** The places from `[0]` up to `[1]` hold all that lies between two moments, waits included. @param {number} from @param {number} to */
  between(from, to) {
    this.#sort();
    const first = placeAfter(this.#reach, from);
    return [first, Math.max(first, placeAfter(this.#since, to))];
  }

  /**
   * What is at a moment, or at most `slack` ms beside it: a bar before a wait, the nearest one.
   * @param {number} at @param {number} slack @returns {Run | null}
   */
  at(at, slack) {
    const [first, last] = this.between(at - slack, at + slack);
    let found = null;
    let least = Infinity;
    for (let place = first; place < last; place += 1) {
      const begin = this.begins[place];
      const away = begin === Infinity || at < begin ? begin - at : Math.max(0, at - this.ends[place]);
      const waits = this.queued[place] - slack <= at && at < begin ? slack * 2 + Math.min(1, (begin - at) / 1e12) : Infinity;
      const distance = Math.min(away <= slack ? away : Infinity, waits);
      if (distance < least) [found, least] = [this.runs[place], distance];
    }
    return found;
  }

  #sort() {
    if (this.#sorted) return;
    this.#sorted = true;
    const runs = this.runs.sort((a, b) => beginOf(a) - beginOf(b) || a.queued - b.queued || 0);
    this.begins = Float64Array.from(runs, beginOf);
    this.ends = Float64Array.from(runs, endOf);
    this.queued = Float64Array.from(runs, (run) => run.queued);
    this.kinds = Uint8Array.from(runs, (run) => run.kind);
    this.#reach = this.ends.slice();
    for (let place = 1; place < runs.length; place += 1) this.#reach[place] = Math.max(this.#reach[place], this.#reach[place - 1]);
    this.#since = this.queued.slice();
    for (let place = runs.length - 2; place >= 0; place -= 1) this.#since[place] = Math.min(this.#since[place], this.#since[place + 1]);
  }
}

/** One agent's lanes by slot number, and how many ran and waited at any moment. */
export class AgentLanes {
  /** @type {Map<number, Lane>} 0: without a slot */
  lanes = new Map();
  mostSlot = 0;
  /** @type {{queued: Float64Array, begun: Float64Array, started: Float64Array, over: Float64Array} | null} */
  #counts = null;

  /** @param {Run} run */
  add(run) {
    this.laneOf(run.slot ?? 0).add(run);
    this.#counts = null;
  }

  /** @param {Run} run */
  remove(run) {
    this.lanes.get(run.slot ?? 0)?.remove(run);
    this.#counts = null;
  }

  /** @param {Run} run */
  touch(run) {
    this.lanes.get(run.slot ?? 0)?.touch();
    this.#counts = null;
  }

  /** @param {number} slot */
  laneOf(slot) {
    let lane = this.lanes.get(slot);
    if (!lane) this.lanes.set(slot, (lane = new Lane()));
    this.mostSlot = Math.max(this.mostSlot, slot);
    return lane;
  }

  /** Whether some have waited without a slot. */
  get hasWaiting() {
    return Boolean(this.lanes.get(0)?.runs.length);
  }

  /** @param {number} at */
  countsAt(at) {
    const { queued, begun, started, over } = (this.#counts ??= this.#count());
    return { ran: placeAfter(started, at) - placeAfter(over, at), waited: placeAfter(queued, at) - placeAfter(begun, at) };
  }

  #count() {
    const runs = [...this.lanes.values()].flatMap((lane) => lane.runs);
    const began = runs.filter((run) => run.started !== null);
    /** @param {Run[]} of @param {(run: Run) => number} moment */
    const sorted = (of, moment) => Float64Array.from(of, moment).sort();
    return {
      queued: sorted(runs, (run) => run.queued), begun: sorted(runs, beginOf),
      started: sorted(began, beginOf), over: sorted(began, endOf),
    };
  }
}
