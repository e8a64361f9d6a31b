// @ts-check
/** Paints what is in view, and nothing else. */
import { KINDS, WAITING } from "./timeline-lanes.js";
import { BAR, LANE } from "./timeline-layout.js";
/** @typedef {import("./timeline-lanes.js").Lane} Lane */
/** @typedef {import("./timeline-lanes.js").Run} Run */
/** @typedef {import("./timeline-layout.js").Layout} Layout */
/** @typedef {import("./timeline-layout.js").Row} Row */
/** @typedef {import("./timeline-data.js").History} History */
/** @typedef {{from: number, span: number, top: number, width: number, height: number, ticks: number[], chosen: Run | null, pointed: Run | null}} Frame */
/** @typedef {Record<string, string>} Colors */

const TILE = 8;
/** Bars narrower than this many pixels are drawn plain, and those that touch as one. */
const PLAIN_BELOW = 4;
const INSET = (LANE - BAR) / 2;

/** How each kind's tile is struck through: lines from (x, y) to (x, y). @type {Record<string, number[][]>} */
const STROKES = {
  waiting: [[-2, 2, 2, -2], [0, 8, 8, 0], [6, 10, 10, 6]],
  success: [],
  running: [[0, 4, 8, 4]],
  cancelled: [[2, 0, 2, 8], [6, 0, 6, 8]],
  lost: [[0, 0, 8, 8], [0, 8, 8, 0]],
  failed: [[-2, 6, 2, 10], [0, 0, 8, 8], [6, -2, 10, 2]],
};

/**
 * The picture a kind's bars are filled with. Waits have no ground: they are hatched only.
 * @param {string} kind @param {Colors} colors @param {number} ratio
 */
export function tileOf(kind, colors, ratio) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(TILE * ratio);
  const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  pen.scale(tile.width / TILE, tile.height / TILE);
  if (kind !== "waiting") {
    pen.fillStyle = colors[kind];
    pen.fillRect(0, 0, TILE, TILE);
  }
  pen.strokeStyle = kind === "waiting" ? colors.waiting : colors.panel;
  pen.lineWidth = kind === "waiting" ? 1.5 : 1;
  for (const [x, y, toX, toY] of STROKES[kind]) {
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(toX, toY);
    pen.stroke();
  }
  return tile;
}

export class Painter {
  /** @type {(CanvasPattern | string)[]} */
  #fills = [];
  /** @type {Colors} */
  #colors = {};
  #ratio = 0;
  /** Rectangles by kind, four numbers each: patterned ones, then plain ones. @type {number[][]} */
  #patterned = KINDS.map(() => []);
  /** @type {number[][]} */
  #plain = KINDS.map(() => []);

  /** @param {HTMLCanvasElement} canvas @param {History} history */
  constructor(canvas, history) {
    this.canvas = canvas;
    this.pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.history = history;
  }

  /** Takes other colours from here on. @param {Colors} colors */
  dress(colors) {
    this.#colors = colors;
    this.#ratio = 0;
  }

  /** @param {Layout} layout @param {Frame} frame */
  paint(layout, frame) {
    this.#fit(frame.width, frame.height);
    const { pen } = this;
    pen.fillStyle = this.#colors.panel;
    pen.fillRect(0, 0, frame.width, frame.height);
    this.#ground(layout, frame);
    const blocks = layout.between(frame.top, frame.top + frame.height);
    for (const block of blocks) {
      const lanes = this.history.lanesOf(block.name);
      for (const row of layout.rowsOf(block)) {
        const lane = lanes?.lanes.get(row.slot);
        if (lane) this.#collect(lane, row.y - frame.top + INSET, frame);
      }
    }
    this.#flush();
    this.#edges(layout, frame);
  }

  /** @param {number} width @param {number} height */
  #fit(width, height) {
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide || this.canvas.height !== high) [this.canvas.width, this.canvas.height] = [wide, high];
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (ratio === this.#ratio) return;
    this.#ratio = ratio;
    this.#fills = KINDS.map((kind) => (kind === "success" ? this.#colors.success : this.#patternOf(kind, ratio)));
  }

  /** @param {string} kind @param {number} ratio */
  #patternOf(kind, ratio) {
    const pattern = this.pen.createPattern(tileOf(kind, this.#colors, ratio), "repeat");
    pattern?.setTransform(new DOMMatrix().scale(1 / ratio));
    return pattern ?? this.#colors[kind];
  }

  /** Lines between agents and at the ticks, and what is not known yet. @param {Layout} layout @param {Frame} frame */
  #ground(layout, frame) {
    const { pen } = this;
    const x = (/** @type {number} */ at) => ((at - frame.from) / frame.span) * frame.width;
    pen.fillStyle = this.#colors.line;
    for (const tick of frame.ticks) pen.fillRect(Math.round(x(tick)), 0, 1, frame.height);
    for (const block of layout.between(frame.top, frame.top + frame.height)) pen.fillRect(0, block.top + block.height - 1 - frame.top, frame.width, 1);
    pen.globalAlpha = 0.35;
    const now = Math.min(frame.from + frame.span, this.history.heard ? this.history.now - 5000 : frame.from + frame.span);
    for (const [from, to] of this.history.gaps(frame.from, now)) {
      // The last moments are always about to be known.
      if (to - from > frame.span / 200 && (to < now || !this.history.heard)) pen.fillRect(x(from), 0, x(to) - x(from), frame.height);
    }
    pen.globalAlpha = 1;
  }

  /** @param {Lane} lane @param {number} y @param {Frame} frame */
  #collect(lane, y, frame) {
    const { from, span, width } = frame;
    const [first, last] = lane.between(from, from + span);
    const { begins, ends, queued, kinds } = lane;
    const scale = width / span;
    const { now } = this.history;
    const right = width + 4;
    let [left, edge, kind] = [0, -1, -1];
    let waited = -1;
    for (let place = first; place < last; place += 1) {
      const end = Math.min(ends[place], now);
      const begin = Math.min(begins[place], end);
      const begun = (begin - from) * scale;
      if (queued[place] < begin) waited = this.#wait(Math.max(-4, waited, (queued[place] - from) * scale), Math.min(right, begun), y, waited);
      if (begins[place] === Infinity || begun > width) continue;
      const [start, stop] = [Math.max(-4, begun), Math.min(right, (end - from) * scale)];
      if (stop < 0) continue;
      if (edge >= 0 && stop - start < 1 && edge - left < PLAIN_BELOW && start - edge < 0.5) {
        // Thinner than a pixel: one bar for all of them, of the kind that tells most.
        edge = Math.max(edge, stop);
        kind = Math.max(kind, kinds[place]);
        continue;
      }
      if (edge >= 0) this.#bar(kind, left, edge, y);
      [left, edge, kind] = [start, stop, kinds[place]];
    }
    if (edge >= 0) this.#bar(kind, left, edge, y);
  }

  /** A wait from `left` on; what earlier ones have hatched already is not hatched twice. @param {number} left @param {number} right @param {number} y @param {number} waited */
  #wait(left, right, y, waited) {
    const [from, to] = [this.#snapped(left), this.#snapped(right)];
    if (from < to) (to - from < PLAIN_BELOW ? this.#plain : this.#patterned)[WAITING].push(from, y, to - from, BAR);
    return Math.max(waited, right);
  }

  /** @param {number} kind @param {number} left @param {number} right @param {number} y */
  #bar(kind, left, right, y) {
    const from = this.#snapped(left);
    const width = Math.max(1, this.#snapped(right) - from);
    // A hair between one bar and the next, where there is room for it.
    const shown = width > PLAIN_BELOW ? width - 1 / this.#ratio : width;
    (width < PLAIN_BELOW ? this.#plain : this.#patterned)[kind].push(from, y, shown, BAR);
  }

  /** On the screen's own pixels: edges between two of them cost several times as much to paint. @param {number} x */
  #snapped(x) {
    return Math.round(x * this.#ratio) / this.#ratio;
  }

  #flush() {
    const { pen } = this;
    KINDS.forEach((kind, number) => {
      const patterned = this.#patterned[number];
      pen.fillStyle = this.#fills[number];
      for (let place = 0; place < patterned.length; place += 4) pen.fillRect(patterned[place], patterned[place + 1], patterned[place + 2], BAR);
      if (number === WAITING) this.#outline(patterned);
      const plain = this.#plain[number];
      pen.fillStyle = this.#colors[kind];
      for (let place = 0; place < plain.length; place += 4) pen.fillRect(plain[place], plain[place + 1], plain[place + 2], BAR);
      patterned.length = plain.length = 0;
    });
  }

  /** Waits begin with a line, on their ground. @param {number[]} rectangles */
  #outline(rectangles) {
    this.pen.fillStyle = this.#colors.waiting;
    for (let place = 0; place < rectangles.length; place += 4) this.pen.fillRect(rectangles[place], rectangles[place + 1] + BAR - 1, rectangles[place + 2], 1);
  }

  /** Now, and frames around what is pointed at and what is chosen. @param {Layout} layout @param {Frame} frame */
  #edges(layout, frame) {
    const { pen } = this;
    const x = (/** @type {number} */ at) => ((at - frame.from) / frame.span) * frame.width;
    pen.fillStyle = this.#colors.now;
    if (this.history.heard) pen.fillRect(Math.round(x(this.history.now)), 0, 2, frame.height);
    for (const [run, width] of /** @type {[Run | null, number][]} */ ([[frame.pointed, 1.5], [frame.chosen, 2.5]])) {
      const row = run && rowOf(layout, run);
      if (!run || !row) continue;
      const end = Math.min(run.ended ?? Infinity, this.history.now);
      pen.strokeStyle = this.#colors.text;
      pen.lineWidth = width;
      const left = x(Math.min(run.queued, run.started ?? Infinity));
      pen.strokeRect(left - 1, row.y - frame.top + INSET - 1, Math.max(3, x(end) - left) + 2, BAR + 2);
    }
  }
}

/** @param {Layout} layout @param {Run} run @returns {Row | null} */
export function rowOf(layout, run) {
  const block = layout.blockOf(run.agent);
  return (block && layout.rowsOf(block).find((row) => row.slot === (run.slot ?? 0))) ?? null;
}
