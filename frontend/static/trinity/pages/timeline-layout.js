// @ts-check
/** Where each agent's lanes stand, from the top of the whole. */
import { placeAfter } from "./timeline-lanes.js";
/** @typedef {import("./timeline-data.js").History} History */

export const LANE = 14;
export const BAR = 10;
const PADDING = 8;
/** A head has its meter of 52 px. */
const LEAST = 68;
const LIMIT_UNKNOWN = 1;

/**
 * @typedef {{name: string, top: number, height: number, slots: number, waiting: boolean}} Block  waiting: a lane without a slot
 * @typedef {{block: Block, slot: number, y: number}} Row  slot 0: the lane of those without; y: its top
 */

export class Layout {
  /** @type {Block[]} */
  blocks = [];
  #tops = new Float64Array();
  height = 0;

  /** @param {string[]} names @param {History} history @param {(name: string) => number | undefined} limitOf */
  constructor(names, history, limitOf) {
    for (const name of names) {
      const lanes = history.lanesOf(name);
      const slots = Math.max(limitOf(name) ?? LIMIT_UNKNOWN, lanes?.mostSlot ?? 0, 1);
      const waiting = lanes?.hasWaiting ?? false;
      const height = Math.max(LEAST, (slots + Number(waiting)) * LANE + 2 * PADDING);
      this.blocks.push({ name, top: this.height, height, slots, waiting });
      this.height += height;
    }
    this.#tops = Float64Array.from(this.blocks, (block) => block.top);
  }

  /** The blocks of which something lies between two heights. @param {number} top @param {number} bottom */
  between(top, bottom) {
    const first = Math.max(0, placeAfter(this.#tops, top) - 1);
    return this.blocks.slice(first, placeAfter(this.#tops, bottom));
  }

  /** @param {Block} block @returns {Row[]} */
  rowsOf(block) {
    const slots = Array.from({ length: block.slots }, (_, place) => ({ block, slot: place + 1, y: block.top + PADDING + place * LANE }));
    return block.waiting ? [...slots, { block, slot: 0, y: block.top + PADDING + block.slots * LANE }] : slots;
  }

  /** @param {number} y @returns {Row | null} */
  rowAt(y) {
    const block = this.blocks[placeAfter(this.#tops, y) - 1];
    return this.rowsOf(block ?? { name: "", top: 0, height: 0, slots: 0, waiting: false }).find((row) => y >= row.y && y < row.y + LANE) ?? null;
  }

  /** @param {string} name */
  blockOf(name) {
    return this.blocks.find((block) => block.name === name);
  }
}
