// @ts-check
/** What the timeline knows: spans of the past, fetched once each, and the tail when something has changed. */
import { get } from "../lib/api.js";
import { AgentLanes, kindOf } from "./timeline-lanes.js";
/** @typedef {import("./timeline-lanes.js").Run} Run */

/** Ended runs a page: few enough to be read between two frames. */
const PAGE = 4000;
/** A tail begins so much before the last answer: what was written then may have been seen only later. */
const OVERLAP_MS = 10_000;
const BETWEEN_TAILS_MS = 1000;
const LONGEST_MS = 30 * 86_400_000;
/** Beyond this, what is far from the view is let go. */
const MOST_RUNS = 400_000;

/** Says `change` when it knows more, `busy` when it begins or ends to ask, `failed` with the refusal. */
export class History extends EventTarget {
  /** @type {Map<string, Run>} */
  #runs = new Map();
  /** @type {Map<string, AgentLanes>} */
  #agents = new Map();
  /** Spans that are known, in order. @type {[number, number][]} */
  #known = [];
  /** @type {[number, number] | null} */
  #wanted = null;
  /** The server's clock less the browser's. */
  #ahead = 0;
  #heardAt = 0;
  #asking = false;
  #tailDue = false;
  /** @type {number | undefined} */
  #tailTimer;
  /** @type {string[]} */
  names = [];
  truncated = false;
  busy = false;

  /** @param {string} agent narrows it to one agent; "": all @param {number} now the server's, in ms */
  constructor(agent = "", now = Date.now()) {
    super();
    this.agent = agent;
    // The browser's clock may be hours off: a span that begins in the server's future would be refused.
    this.#ahead = now - Date.now();
  }

  /** The server's now. */
  get now() {
    return Date.now() + this.#ahead;
  }

  /** Whether it has had an answer. */
  get heard() {
    return this.#heardAt > 0;
  }

  get size() {
    return this.#runs.size;
  }

  /** @param {string} name */
  lanesOf(name) {
    return this.#agents.get(name);
  }

  /** @param {string} id */
  run(id) {
    return this.#runs.get(id);
  }

  /** The earliest moment known of. */
  get earliest() {
    return this.#known[0]?.[0] ?? this.now;
  }

  /** The parts of a span that are not known. @param {number} from @param {number} to @returns {[number, number][]} */
  gaps(from, to) {
    /** @type {[number, number][]} */
    const gaps = [];
    let at = from;
    for (const [begin, end] of this.#known) {
      if (end <= at) continue;
      if (begin >= to) break;
      if (begin > at) gaps.push([at, begin]);
      at = Math.max(at, end);
    }
    if (at < to) gaps.push([at, to]);
    return gaps;
  }

  /** Sees to it that a span is known; the last one asked for counts. @param {number} from @param {number} to */
  want(from, to) {
    this.#wanted = [from, to];
    this.#work();
  }

  /** Sees to it that what has changed is known, at most once a second. */
  renew() {
    if (!this.heard || this.#tailTimer !== undefined) return;
    const wait = Math.max(0, this.#heardAt + BETWEEN_TAILS_MS - this.now);
    this.#tailTimer = window.setTimeout(() => {
      this.#tailTimer = undefined;
      this.#tailDue = true;
      this.#work();
    }, wait);
  }

  async #work() {
    if (this.#asking) return;
    this.#asking = true;
    try {
      for (let span = this.#next(); span; span = this.#next()) await this.#fetch(span);
    } catch (error) {
      this.#wanted = null;
      this.dispatchEvent(new CustomEvent("failed", { detail: error }));
    } finally {
      this.#asking = false;
      this.#setBusy(false);
    }
  }

  /** What to ask for now: the tail first, else the latest gap. @returns {{from: number, to: number, tail: boolean} | null} */
  #next() {
    if (this.#tailDue) {
      this.#tailDue = false;
      return { from: Math.max(this.#heardAt - OVERLAP_MS, this.now - LONGEST_MS), to: this.now, tail: true };
    }
    if (!this.#wanted) return null;
    const to = this.heard ? Math.min(this.#wanted[1], this.#heardAt) : this.#wanted[1];
    const gap = this.gaps(this.#wanted[0], to).pop();
    return gap ? { from: Math.max(gap[0], gap[1] - LONGEST_MS), to: gap[1], tail: false } : null;
  }

  /** @param {{from: number, to: number, tail: boolean}} span */
  async #fetch({ from, to, tail }) {
    if (!tail) this.#setBusy(true);
    const query = new URLSearchParams({ from: new Date(from).toISOString(), limit: String(PAGE) });
    // Else up to the server's own now, which is not known before the first answer.
    const toNow = tail || (!this.heard && to >= this.now);
    if (!toNow) query.set("to", new Date(to).toISOString());
    if (this.agent) query.set("agent", this.agent);
    /** @type {string | null} */
    let path = `/api/timeline/?${query}`;
    let heardAt = 0;
    let end = to;
    while (path) {
      const answer = await get(path);
      if (!heardAt) {
        heardAt = Date.parse(answer.server_time);
        if (toNow) end = Date.parse(answer.to);
      }
      this.#take(answer);
      path = answer.next && new URL(answer.next).pathname + new URL(answer.next).search;
      // A span that nobody looks at any more is not worth its pages.
      if (path && !tail && this.#wanted && (this.#wanted[1] < from || this.#wanted[0] > end)) return;
    }
    if (tail || !this.heard) this.#hear(heardAt);
    this.#know(from, end);
    if (this.#runs.size > MOST_RUNS) this.#forget();
    this.dispatchEvent(new Event("change"));
  }

  /** @param {number} at */
  #hear(at) {
    this.#heardAt = at;
    this.#ahead = at - Date.now();
  }

  /** @param {any} answer */
  #take(answer) {
    this.names = answer.agents;
    this.truncated = answer.truncated || this.truncated;
    const { columns, statuses, agents } = answer;
    for (let place = 0; place < columns.id.length; place += 1) {
      const queued = columns.queued_at[place];
      const { [place]: startedAfter } = columns.started_after;
      const { [place]: completedAfter } = columns.completed_after;
      const status = statuses[columns.status[place]];
      const code = columns.error_code[place];
      this.#put({
        id: columns.id[place], agent: agents[columns.agent[place]], slot: columns.slot_number[place] || null, status, code,
        kind: kindOf(status, code), queued, started: startedAfter === null ? null : queued + startedAfter,
        ended: completedAfter === null ? null : queued + completedAfter, retryOf: columns.retry_of[place],
        message: columns.message_preview[place],
      });
    }
    this.dispatchEvent(new Event("change"));
  }

  /** @param {Run} run */
  #put(run) {
    const held = this.#runs.get(run.id);
    let lanes = this.#agents.get(run.agent);
    if (!lanes) this.#agents.set(run.agent, (lanes = new AgentLanes()));
    if (!held) {
      this.#runs.set(run.id, run);
      return lanes.add(run);
    }
    // What has ended stays as it is; an answer under way may still say otherwise.
    if (held.ended !== null) return undefined;
    const moved = held.slot !== run.slot;
    if (moved) lanes.remove(held);
    Object.assign(held, run);
    return moved ? lanes.add(held) : lanes.touch(held);
  }

  /** @param {number} from @param {number} to */
  #know(from, to) {
    const apart = this.#known.filter(([begin, end]) => end < from || begin > to);
    const joined = this.#known.filter(([begin, end]) => end >= from && begin <= to);
    const begin = Math.min(from, ...joined.map((span) => span[0]));
    const end = Math.max(to, ...joined.map((span) => span[1]));
    this.#known = [...apart, /** @type {[number, number]} */ ([begin, end])].sort((a, b) => a[0] - b[0]);
  }

  /** Lets go of what ended outside of what is wanted. */
  #forget() {
    if (!this.#wanted) return;
    const [from, to] = this.#wanted;
    const kept = [...this.#runs.values()].filter((run) => run.ended === null || (run.ended > from && run.queued < to));
    this.#runs = new Map(kept.map((run) => [run.id, run]));
    this.#agents = new Map();
    for (const run of kept) {
      if (!this.#agents.has(run.agent)) this.#agents.set(run.agent, new AgentLanes());
      this.#agents.get(run.agent)?.add(run);
    }
    this.#known = this.#known.map(([begin, end]) => /** @type {[number, number]} */ ([Math.max(begin, from), Math.min(end, to)])).filter(([a, b]) => a < b);
  }

  /** @param {boolean} busy */
  #setBusy(busy) {
    if (busy === this.busy) return;
    this.busy = busy;
    this.dispatchEvent(new Event("busy"));
  }
}
