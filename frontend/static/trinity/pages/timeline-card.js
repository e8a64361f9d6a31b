// @ts-check
/** What one run was, in a card beside it, and in a sentence for those who hear it. */
import { element, html } from "../lib/html.js";
import { moment } from "./timeline-axis.js";
import { duration } from "./times.js";
/** @typedef {import("./timeline-lanes.js").Run} Run */

const WORDS = /** @type {Record<string, string>} */ ({ success: "succeeded", queued: "waiting" });
const OFF = 14;

/** @param {Run} run */
export function statusOf(run) {
  if (run.status === "running" && run.started === null) return "starting";
  return WORDS[run.status] ?? run.status;
}

/** @param {Run} run @param {number} now */
export const waitedOf = (run, now) => duration((run.started ?? run.ended ?? now) - run.queued);
/** @param {Run} run @param {number} now */
export const ranOf = (run, now) => (run.started === null ? "never" : duration((run.ended ?? now) - run.started));

/** @param {Run} run @param {number} now */
export function sentenceOf(run, now) {
  const slot = run.slot ? `slot ${run.slot}` : "no slot";
  const ran = run.started === null ? "" : `, ran ${ranOf(run, now)}`;
  return `${run.agent}, ${slot}: ${statusOf(run)}${run.code ? ` (${run.code})` : ""}, from ${moment(run.queued)}, waited ${waitedOf(run, now)}${ran}. ${run.message}`;
}

/** @param {Run} run @param {number} now */
function bodyOf(run, now) {
  return element(html`<div>
    <p class="timeline__card-head"><span class="badge" data-state="${run.status}">${statusOf(run)}</span>
      ${run.code ? html`<code>${run.code}</code>` : ""} <strong>${run.agent}</strong></p>
    <p class="timeline__message" dir="auto">${run.message}</p>
    <dl class="timeline__facts">
      <dt>Slot</dt><dd>${run.slot ?? "none"}</dd>
      <dt>Waited</dt><dd>${waitedOf(run, now)}</dd>
      <dt>Ran</dt><dd>${run.started === null ? "not started" : ranOf(run, now)}</dd>
      <dt>In line</dt><dd>${moment(run.queued)}</dd>
      ${run.started === null ? "" : html`<dt>Started</dt><dd>${moment(run.started)}</dd>`}
      ${run.ended === null ? "" : html`<dt>Ended</dt><dd>${moment(run.ended)}</dd>`}
      ${run.retryOf ? html`<dt>Retry of</dt><dd><code>${run.retryOf}</code></dd>` : ""}
    </dl>
    <code class="id">${run.id}</code>
  </div>`);
}

export class Card {
  /** @type {Run | null} */
  #run = null;
  #told = "";

  /** @param {HTMLElement} card @param {HTMLElement} within @param {HTMLElement} voice */
  constructor(card, within, voice) {
    this.card = card;
    this.within = within;
    this.voice = voice;
  }

  /** Shows a run beside a place of the window, or nothing. @param {Run | null} run @param {number} x @param {number} y @param {number} now */
  show(run, x, y, now) {
    if (!run) {
      if (this.#run) this.card.hidden = true;
      this.#run = null;
      return;
    }
    this.card.hidden = false;
    const told = `${run.id} ${run.status} ${run.started}`;
    if (this.#run !== run || this.#told !== told || run.ended === null) this.card.replaceChildren(bodyOf(run, now));
    [this.#run, this.#told] = [run, told];
    this.#place(x, y);
  }

  /** Says a run aloud. @param {Run | null} run @param {number} now */
  say(run, now) {
    this.voice.textContent = run ? sentenceOf(run, now) : "";
  }

  /** @param {number} x @param {number} y */
  #place(x, y) {
    const box = this.within.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.card;
    const left = x + OFF + width > box.right ? x - OFF - width : x + OFF;
    const top = y + OFF + height > Math.min(box.bottom, innerHeight) ? y - OFF - height : y + OFF;
    this.card.style.transform = `translate(${Math.max(0, Math.min(left, box.right - width) - box.left)}px, ${Math.max(-box.top, top - box.top)}px)`;
  }
}
