// @ts-check
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Markup that is safe as it is. */
class Markup extends String {}

/** @param {unknown} value @returns {string} */
function escaped(value) {
  if (value instanceof Markup) return value.toString();
  if (Array.isArray(value)) return value.map(escaped).join("");
  if (value === null || value === undefined || value === false) return "";
  return String(value).replace(/[&<>"']/g, (character) => ESCAPES[/** @type {keyof ESCAPES} */ (character)]);
}

/**
 * Markup from a template; every value in it is escaped unless it is markup itself.
 * @param {TemplateStringsArray} strings @param {...unknown} values
 */
export function html(strings, ...values) {
  return new Markup(String.raw({ raw: strings }, ...values.map(escaped)));
}

/** The first element of `markup`. @param {Markup} markup @returns {Element} */
export function element(markup) {
  const template = document.createElement("template");
  template.innerHTML = markup.toString().trim();
  return /** @type {Element} */ (template.content.firstElementChild);
}
