// Questions to the server, relative to the page's own address; in a single file, answers that came along with it.
// It knows no view: a failed answer is an ApiError with what the server said.
import { embedded, frameFromFile, jsonFromFile, leftOut } from "./embedded.js";
import { ApiError } from "./failures.js";
import { searchInFile } from "./file_search.js";
import { decode } from "./frames.js";

export { ApiError, embedded };

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
  if (embedded) return name === "api/search" ? searchInFile(query.q) : jsonFromFile(name, query);
  return (await answer(path(name, withWhich(query)), { signal })).json();
}

export async function askFrame(name, query, signal) {
  if (embedded) return decode(await frameFromFile(name, query));
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
