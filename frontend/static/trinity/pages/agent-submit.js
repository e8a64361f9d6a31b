// @ts-check
/** A task submitted once, however often its button is pressed or the network fails, and watched as it runs. */
import { Refused, get, post } from "../lib/api.js";
import { say } from "../lib/say.js";
import { act } from "./agent-act.js";
import { watchExecution } from "./watch.js";

/** @typedef {import("./agent-renewal.js").Renewal} Renewal */

const ENDED = new Set(["success", "failed", "cancelled"]);
const WORDS = /** @type {Record<string, string>} */ ({ queued: "waiting", success: "succeeded" });

/** @param {string} id @returns {any} */
const at = (id) => document.getElementById(id);

/** @type {{stop: () => void} | null} */
let watched = null;

/** @param {string} agent @param {Renewal} renewal */
export function submitTasks(agent, renewal) {
  const form = /** @type {HTMLFormElement} */ (at("submit"));
  /** The submission that is not known to have arrived: sent again as it was, it makes nothing new. @type {{body: string, key: string} | null} */
  let open = null;

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (at("submit-button").disabled) return;
    const task = read(form);
    if (!task) return;
    const body = JSON.stringify(task);
    if (open?.body !== body) open = { body, key: newKey() };
    const { key } = open;
    const made = await act(renewal, at("submit-button"), () => send(agent, task, key, () => (open = null)));
    if (!made) return;
    open = null;
    at("submit-message").value = "";
    complain("");
    say(made.status === "queued" ? `Submitted: at place ${made.queue_position} of the line.` : "Submitted: it has a slot.");
    watch(made.execution_id, renewal);
  });
  form.addEventListener("input", () => complain(""));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  at("task-close").addEventListener("click", () => {
    watched?.stop();
    watched = null;
    at("task").hidden = true;
    at("submit-message").focus();
  });
}

/** @param {string} agent @param {Record<string, any>} task @param {string} key @param {() => void} refused told that nothing was made */
async function send(agent, task, key, refused) {
  try {
    return await post(`/api/agents/${encodeURIComponent(agent)}/task`, task, { "Idempotency-Key": key });
  } catch (error) {
    // A refusal has made nothing; after a lost answer or a failure nobody knows, and the key stays.
    if (error instanceof Refused && error.status >= 400 && error.status < 500) refused();
    if (error instanceof Refused) complain(error.message, error.problem.errors?.[0]?.pointer);
    throw error;
  }
}

/** @param {HTMLFormElement} form @returns {Record<string, any> | null} null: it was said what is wrong */
function read(form) {
  const text = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).value;
  /** @type {Record<string, any>} */
  const task = { message: text("message"), async_mode: true, on_full: text("on_full") };
  if (!task.message.trim()) return complain("Write a message.", "/message");
  for (const name of ["priority", "timeout_seconds"]) {
    const field = /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
    if (!field.checkValidity()) return complain(`Give a whole number${field.max ? ` from ${field.min} to ${field.max}` : ""}.`, `/${name}`);
    if (field.value !== "") task[name] = Number(field.value);
  }
  if (text("model").trim()) task.model = text("model").trim();
  if (!text("metadata").trim()) return task;
  try {
    task.metadata = JSON.parse(text("metadata"));
  } catch {
    return complain("The metadata is no JSON.", "/metadata");
  }
  return task;
}

/** Says what is wrong, at the field that it is about; "": nothing is. @param {string} text @param {string} [pointer] @returns {null} */
function complain(text, pointer) {
  const line = at("submit-error");
  line.textContent = text;
  line.hidden = !text;
  for (const field of at("submit").querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  const field = pointer ? at("submit").elements.namedItem(pointer.split("/")[1]) : null;
  if (!text || !field) return null;
  field.setAttribute("aria-invalid", "true");
  if (field.closest("details")) field.closest("details").open = true;
  field.focus();
  return null;
}

/** @param {string} id @param {Renewal} renewal */
function watch(id, renewal) {
  watched?.stop();
  at("task").hidden = false;
  at("task-result").hidden = true;
  at("task-link").href = `/executions/${id}/`;
  at("task-link").textContent = id.slice(0, 13);
  at("task-link").title = id;
  at("task-cancel").dataset.cancel = id;
  showState({ status: "queued" });
  watched = watchExecution(at("task-log"), id, { onExecution: showState, onEnd: () => void showResult(id) });
  at("task-heading").focus({ preventScroll: true });
  renewal.soon();
}

/** @param {Record<string, any>} execution */
function showState({ status, started_at: started, cancel_requested_at: cancelled }) {
  const word = status === "running" && !started ? "starting" : status === "running" && cancelled ? "cancelling" : status;
  at("task-status").dataset.state = word;
  at("task-status").textContent = WORDS[word] ?? word;
  at("task-cancel").hidden = ENDED.has(status) || word === "cancelling";
  at("task-cancel").toggleAttribute("data-running", status === "running");
}

/** @param {string} id */
async function showResult(id) {
  const execution = await get(`/api/executions/${id}/`).catch(() => null);
  if (!execution || at("task-cancel").dataset.cancel !== id) return;
  showState(execution);
  const text = execution.status === "success" ? execution.response : execution.error;
  at("task-result-name").textContent = execution.status === "success" ? "Result" : "What went wrong";
  at("task-output").textContent = text ?? "";
  at("task-result").hidden = !text;
}

/** `crypto.randomUUID` is for secure pages alone; an address in a local network is none. */
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
