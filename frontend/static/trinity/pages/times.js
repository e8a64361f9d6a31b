// @ts-check
/** Times in the reader's own zone (UTC on hover) and ages that count. */

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** @param {number} milliseconds */
export function duration(milliseconds) {
  const seconds = Math.max(0, milliseconds / 1000);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** An age ticks by whole seconds. @param {Element} time */
function showAge(time) {
  const seconds = Math.floor((Date.now() - Date.parse(time.getAttribute("datetime") ?? "")) / 1000);
  time.textContent = seconds < 10 ? `${Math.max(0, seconds)} s` : duration(seconds * 1000);
}

/** What is left until then, and past it the word for that. @param {HTMLElement} time */
function showLeft(time) {
  const seconds = Math.ceil((Date.parse(time.getAttribute("datetime") ?? "") - Date.now()) / 1000);
  time.textContent = seconds <= 0 ? (time.dataset.past ?? "now") : whole(seconds);
}

/** When something should happen, as a range that comes nearer. @param {HTMLElement} span */
function showRange(span) {
  const [earliest, latest] = [span.dataset.earliest, span.dataset.latest].map((at) => Math.ceil((Date.parse(at ?? "") - Date.now()) / 1000));
  span.textContent = latest <= 0 ? "any moment" : earliest <= 0 ? `within ${whole(latest)}` : `in ${whole(earliest)} to ${whole(latest)}`;
}

/** @param {number} seconds */
const whole = (seconds) => (seconds < 10 ? `${seconds} s` : duration(seconds * 1000));

function showAges() {
  document.querySelectorAll("time[data-local=age]").forEach(showAge);
  /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("time[data-local=left]")).forEach(showLeft);
  /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-earliest][data-latest]")).forEach(showRange);
}

/** Writes the times inside `root` for their reader. @param {ParentNode} root */
export function localise(root) {
  for (const time of root.querySelectorAll("time[data-local=moment]")) time.textContent = moment.format(new Date(time.getAttribute("datetime") ?? ""));
  for (const span of root.querySelectorAll("[data-from][data-to]"))
    span.textContent = duration(Date.parse(span.getAttribute("data-to") ?? "") - Date.parse(span.getAttribute("data-from") ?? ""));
  showAges();
}

/** Keeps the ages of the page counting. */
export function countAges() {
  setInterval(showAges, 1000);
}
