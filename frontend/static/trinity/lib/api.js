// @ts-check
import { signedOut } from "./session.js";

/** A refusal of the API: `message` is its sentence, `problem` the whole body. */
export class Refused extends Error {
  /** @param {number} status @param {Record<string, any>} problem */
  constructor(status, problem) {
    super(problem.detail ?? `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

/** The token that Django's middleware asks of a browser session. */
function csrfToken() {
  return /** @type {HTMLMetaElement | null} */ (document.querySelector("meta[name=csrf-token]"))?.content ?? "";
}

/** @type {WeakMap<object, string | null>} */
const tags = new WeakMap();

/** The `ETag` that came with an answer. @param {object} answer */
export const tagOf = (answer) => tags.get(answer) ?? null;

/** @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers] */
async function call(method, path, body, headers = {}) {
  const response = await fetch(path, {
    method,
    credentials: "same-origin",
    headers: { Accept: "application/json", ...(method === "GET" ? {} : { "Content-Type": "application/json", "X-CSRFToken": csrfToken() }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch(() => {
    throw new Refused(0, { detail: "The server can't be reached. Check the connection and try again." });
  });
  const answer = response.status === 204 ? {} : await response.json().catch(() => null);
  if (response.status === 401) signedOut();
  if (!response.ok) throw new Refused(response.status, answer ?? {});
  // Cut off on its way, or another server's: whether it was done isn't known.
  if (answer === null) throw new Refused(0, { detail: "The server's answer could not be read. Check the connection and try again." });
  tags.set(answer, response.headers.get("ETag"));
  return answer;
}

/** @param {string} path */
export const get = (path) => call("GET", path);
/** @param {string} path @param {unknown} body @param {Record<string, string>} [headers] */
export const post = (path, body, headers) => call("POST", path, body, headers);
/** @param {string} path @param {unknown} body @param {Record<string, string>} [headers] */
export const put = (path, body, headers) => call("PUT", path, body, headers);
