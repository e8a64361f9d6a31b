// @ts-check
/** One agent's page: its meter moves by the socket, and by the socket's word its parts are renewed. */
import { takeControl } from "./agent-controls.js";
import { editLimit } from "./agent-limit.js";
import { Renewal } from "./agent-renewal.js";
import { submitTasks } from "./agent-submit.js";
import { follow } from "./live.js";
import { countAges, localise } from "./times.js";

const page = /** @type {HTMLElement} */ (document.getElementById("agent"));
const name = page.dataset.agent ?? "";
const renewal = new Renewal(page.dataset.src ?? "", /** @type {HTMLElement} */ (document.getElementById("renewal")));

localise(document);
countAges();
editLimit(name, renewal);
takeControl(name, renewal);
submitTasks(name, renewal);

const rendered = Number(document.querySelector("capacity-meter")?.getAttribute("version"));
/** What the parts were last renewed for. */
let known = "";
const store = follow({ agents: [name] });
store.addEventListener("change", () => {
  const capacity = store.get(name);
  const news = JSON.stringify(capacity ?? null);
  // The first snapshot mostly says what the page was made with.
  const told = known === news || (known === "" && capacity?.version === rendered);
  known = news;
  /** @type {HTMLElement} */ (document.getElementById("unknown")).hidden = !capacity || capacity.active !== null;
  if (!told) renewal.soon();
});
