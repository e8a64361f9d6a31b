// @ts-check
/** What a page says when its session has ended: everything else on it is old from then on. */

/** Shows the shell's notice, whose link leads back here after signing in. */
export function signedOut() {
  const notice = document.getElementById("signed-out");
  if (!notice) return;
  const link = /** @type {HTMLAnchorElement} */ (notice.querySelector("a"));
  link.href = `/login/?next=${encodeURIComponent(location.pathname + location.search)}`;
  notice.hidden = false;
}

/** A page of ours, fetched; null where it can't be had, which the reader is told. @param {string} path @returns {Promise<string | null>} */
export async function fetchPage(path) {
  const response = await fetch(path, { credentials: "same-origin", headers: { Accept: "text/html" } }).catch(() => null);
  if (response?.redirected && new URL(response.url).pathname.startsWith("/login")) signedOut();
  else if (response?.ok) return response.text();
  return null;
}
