// @ts-check
/** How a meter looks; a page changes it by `--capacity-meter-…` and `::part()`. */

const STYLE = `
:host {
  --_empty: var(--capacity-meter-empty, #e5e7eb);
  --_outline: var(--capacity-meter-outline, #85898f);
  --_low: var(--capacity-meter-low, #15803d);
  --_medium: var(--capacity-meter-medium, #927400);
  --_high: var(--capacity-meter-high, #c2410c);
  --_full: var(--capacity-meter-full, #b91c1c);
  --_hatch: var(--capacity-meter-hatch, #ffffff);
  display: inline-flex;
  align-items: flex-start;
  gap: var(--capacity-meter-text-gap, 0.5em);
  vertical-align: middle;
}
:host([hidden]) { display: none; }
@supports (color: light-dark(red, red)) {
  :host {
    --_empty: var(--capacity-meter-empty, light-dark(#e5e7eb, #2b313b));
    --_outline: var(--capacity-meter-outline, light-dark(#85898f, #767d8a));
    --_low: var(--capacity-meter-low, light-dark(#15803d, #4ade80));
    --_medium: var(--capacity-meter-medium, light-dark(#927400, #fde047));
    --_high: var(--capacity-meter-high, light-dark(#c2410c, #fb923c));
    --_full: var(--capacity-meter-full, light-dark(#b91c1c, #f87171));
    --_hatch: var(--capacity-meter-hatch, light-dark(#ffffff, #14171c));
  }
}
:host([height="0"]) { align-self: stretch; align-items: stretch; }
.bar {
  --_fill: var(--_empty);
  position: relative;
  flex: none;
  display: flex;
  flex-direction: column-reverse;
  gap: var(--capacity-meter-gap, 1px);
  inline-size: var(--capacity-meter-width, var(--_width));
  block-size: var(--capacity-meter-height, var(--_height));
  min-block-size: 12px;
}
:host([height="0"]) .bar { block-size: auto; }
.bar[data-level=low] { --_fill: var(--_low); }
.bar[data-level=medium] { --_fill: var(--_medium); }
.bar[data-level=high] { --_fill: var(--_high); }
.bar[data-level=full] { --_fill: var(--_full); }
.cell {
  flex: 1;
  min-block-size: 0;
  box-sizing: border-box;
  border: 1px solid var(--_outline);
  border-radius: var(--capacity-meter-radius, 2px);
  background-color: var(--_empty);
  transition: background-color 300ms, border-color 300ms;
}
.cell[data-filled] { background-color: var(--_fill); border-color: var(--_fill); }
.bar[data-dense=very] { gap: 0; }
.bar[data-dense] .cell { border-block-width: 0; border-radius: 0; }
.bar[data-level=full] .cell[data-filled] { animation: capacity-pulse 1.2s ease-in-out infinite; }
.bar[data-unknown] .cell { background-color: transparent; border-style: dashed; }
.bar[data-stale] .cell[data-filled] { animation: none; }
.bar[data-stale]::after {
  content: "";
  position: absolute;
  inset: 0;
  background: repeating-linear-gradient(45deg, transparent 0 2px, var(--_hatch) 2px 4px);
}
@keyframes capacity-pulse { 50% { opacity: 0.5; } }
.text {
  display: grid;
  font: var(--capacity-meter-font, inherit);
  font-variant-numeric: tabular-nums;
  line-height: 1.25;
  white-space: nowrap;
}
.text:empty { display: none; }
.count { font-weight: 600; }
@media (prefers-reduced-motion: reduce) {
  .cell { transition: none; }
  .bar[data-level=full] .cell[data-filled] { animation: none; }
}
@media (forced-colors: active) {
  .bar { forced-color-adjust: none; }
  .cell { background-color: Canvas; border-color: CanvasText; }
  .cell[data-filled] { background-color: Highlight; border-color: Highlight; }
  .bar[data-unknown] .cell { border-color: GrayText; }
  .bar[data-stale]::after { background: repeating-linear-gradient(45deg, transparent 0 2px, CanvasText 2px 3px); }
}
`;

/** @type {CSSStyleSheet | undefined} */
let sheet;

/** One sheet for all meters of a page: constructed, so a strict `style-src` lets it through. */
export function sharedSheet() {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
  }
  return sheet;
}
