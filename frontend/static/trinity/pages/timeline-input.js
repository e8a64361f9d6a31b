// @ts-check
/** Pointer, wheel and keys on the plot. */
import { LANE } from "./timeline-layout.js";
/** @typedef {import("./timeline-view.js").View} View */

const CLICK_WITHIN = 4;
const KEY_PAN = 0.15;
const WHEEL_ZOOM = 1.0015;
const LINE = 16;

/**
 * @typedef {object} Plot what input acts on
 * @property {HTMLElement} element
 * @property {HTMLElement} scroller
 * @property {View} view
 * @property {() => number} width asked of nobody's layout: the page is drawn in between
 * @property {(x: number) => number} timeAt of a place of the window
 * @property {(x: number | null, y: number) => void} point null: nothing is pointed at
 * @property {(x: number, y: number, apart: boolean) => void} open
 * @property {(slots: number, runs: number) => void} choose moves what is chosen by lanes, by runs
 * @property {(apart: boolean) => void} openChosen
 * @property {() => void} unchoose
 * @property {() => void} toStart
 */

/** @param {Plot} plot */
export function listen(plot) {
  plot.element.addEventListener("wheel", (event) => turn(plot, event), { passive: false });
  plot.element.addEventListener("keydown", (event) => press(plot, event));
  drag(plot);
}

/** @param {Plot} plot @param {WheelEvent} event */
function turn({ view, timeAt, width }, event) {
  const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
  if (event.ctrlKey || event.metaKey) view.zoom(view.span * WHEEL_ZOOM ** (event.deltaY * unit), timeAt(event.clientX));
  else if (sideways) view.pan(((sideways * unit) / width()) * view.span);
  else return;
  event.preventDefault();
}

/** @param {Plot} plot */
function drag(plot) {
  const { element, scroller, view } = plot;
  /** @type {{x: number, y: number, startX: number, startY: number, moved: boolean} | null} */
  let held = null;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { x: event.clientX, y: event.clientY, startX: event.clientX, startY: event.clientY, moved: false };
    element.setPointerCapture(event.pointerId);
    element.focus({ preventScroll: true });
  });
  element.addEventListener("pointermove", (event) => {
    if (!held) return plot.point(event.clientX, event.clientY);
    held.moved ||= Math.hypot(event.clientX - held.startX, event.clientY - held.startY) > CLICK_WITHIN;
    if (held.moved) {
      element.dataset.state = "dragged";
      view.pan(((held.x - event.clientX) / plot.width()) * view.span);
      scroller.scrollTop += held.y - event.clientY;
      plot.point(null, 0);
    }
    [held.x, held.y] = [event.clientX, event.clientY];
    return undefined;
  });
  element.addEventListener("pointerup", (event) => {
    if (held && !held.moved) plot.open(event.clientX, event.clientY, event.ctrlKey || event.metaKey);
    held = null;
    delete element.dataset.state;
  });
  element.addEventListener("pointercancel", () => {
    held = null;
    delete element.dataset.state;
  });
  element.addEventListener("pointerleave", () => held || plot.point(null, 0));
}

/** @param {Plot} plot @param {KeyboardEvent} event */
function press(plot, event) {
  if (event.altKey || event.metaKey) return;
  const act = actionOf(plot, event);
  if (!act) return;
  event.preventDefault();
  act();
}

/** @param {Plot} plot @param {KeyboardEvent} event @returns {(() => void) | null} */
function actionOf(plot, { key, shiftKey, ctrlKey }) {
  const { view, scroller } = plot;
  if (key === "Enter") return () => plot.openChosen(ctrlKey);
  if (ctrlKey) return null;
  if (shiftKey && key === "ArrowLeft") return () => plot.choose(0, -1);
  if (shiftKey && key === "ArrowRight") return () => plot.choose(0, 1);
  if (shiftKey && key === "ArrowUp") return () => plot.choose(-1, 0);
  if (shiftKey && key === "ArrowDown") return () => plot.choose(1, 0);
  /** @type {Record<string, () => void>} */
  const actions = {
    ArrowLeft: () => view.glide(-KEY_PAN * view.span),
    ArrowRight: () => view.glide(KEY_PAN * view.span),
    ArrowUp: () => scroller.scrollBy(0, -3 * LANE),
    ArrowDown: () => scroller.scrollBy(0, 3 * LANE),
    PageUp: () => scroller.scrollBy(0, -0.9 * scroller.clientHeight),
    PageDown: () => scroller.scrollBy(0, 0.9 * scroller.clientHeight),
    Home: plot.toStart,
    End: () => view.follow(true),
    "+": () => view.step(-1),
    "=": () => view.step(-1),
    "-": () => view.step(1),
    Escape: plot.unchoose,
  };
  return actions[key] ?? null;
}
