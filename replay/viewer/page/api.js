// Questions to the server, relative to the page's own address; in a single file, answers that came along with it.
// It knows no view: a failed answer is an ApiError with what the server said.
import { decode } from "./frames.js";

export class ApiError extends Error {
  constructor(status, message, field) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

const embeddedElement = document.getElementById("reprise-data");

/** What a single file carries: {answers: {path: [{query, json | base64}]}, left_out}; null where a server answers. */
export const embedded = embeddedElement ? JSON.parse(embeddedElement.textContent) : null;

/** "api/timeline" and its query → an address; undefined, null and "" are left away. */
export function path(name, query = {}) {
  const parts = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return parts.length ? `${name}?${new URLSearchParams(parts)}` : name;
}

let which = "";

/** From now on all answers are about this recording: "" the one opened, "other" the one it is compared with. */
export function lookAt(recording) {
  which = recording;
}

export async function askJson(name, query, signal) {
  if (embedded) return fromFile(name, query).json;
  return (await answer(path(name, withWhich(query)), { signal })).json();
}

export async function askFrame(name, query, signal) {
  if (embedded) return decode(fromBase64(fromFile(name, query).base64));
  return decode(await (await answer(path(name, withWhich(query)), { signal })).arrayBuffer());
}

export async function post(name, body, signal) {
  if (embedded) throw leftOut();
  const headers = { "Content-Type": "application/json" };
  return (await answer(path(name, { which }), { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

/** Of whom it is asked about, unless the question itself says so ("" is the one opened). */
function withWhich(query) {
  return query?.which === undefined ? { ...query, which } : query;
}

async function answer(where, options) {
  let response;
  try {
    response = await fetch(where, { ...options, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the server does not answer: has it ended, or the network?", "");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const message = response.status === 401 ? "this page needs its token: open the address with ?token=… as it was printed" : said.error?.message;
  throw new ApiError(response.status, message || `the server answered ${response.status}`, said.error?.field || "");
}

/** Of the answers kept for the path the one whose own query agrees with all that is asked about, apart from ranges. */
function fromFile(name, query = {}) {
  const kept = embedded.answers[name] || [];
  const agrees = (one) => Object.entries(one.query || {}).every(([key, value]) => RANGES.has(key) || String(query[key] ?? value) === String(value));
  const found = kept.find(agrees);
  if (!found) throw leftOut();
  return found;
}

const RANGES = new Set(["from", "to", "width", "rows", "names", "first", "limit"]);

function leftOut() {
  return new ApiError(404, "left out of this file: open the recording itself with `reprise view` to see it", "");
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0)).buffer;
}
