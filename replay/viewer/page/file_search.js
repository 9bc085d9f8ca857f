// What a server would look up, found in a single file: steps by their time, requests by id or tenant.
import { embedded, frameFromFile, hasAnswer } from "./embedded.js";
import { decode } from "./frames.js";

const MAX_FOUND = 50;
const frames = new Map(); // path and query → promise of a frame

/** [step, planned, completed] by number (`at` "step") or the last planned until then ("time"); null where it is not told. */
export async function stepInFile(life, at, value) {
  const found = await frame("api/steps", { life }).catch(() => null);
  if (!found) return null;
  const { step, planned, completed } = found.columns;
  const keys = at === "step" ? step : planned;
  let low = 0;
  for (let high = keys.length; low < high;) {
    const middle = (low + high) >>> 1;
    if (keys[middle] <= value) low = middle + 1;
    else high = middle;
  }
  const index = low - 1;
  if (index < 0 || (at === "step" && step[index] !== value)) return null;
  return [step[index], planned[index], completed[index] < 0 ? null : completed[index]];
}

/** As api/search answers it, without reasons. */
export async function searchInFile(text) {
  const wanted = text.trim();
  const number = /^#?\d{1,15}$/.test(wanted) ? Number(wanted.replace("#", "")) : -1;
  const lives = embedded.answers["api/recording"][0].json.lives;
  const found = { requests: [], steps: [], reasons: [], is_cut: false };
  if (!wanted) return found;
  for (const { life } of lives) {
    const { header } = await frame("api/timeline", { life, axis: "time", group: "none" });
    for (const one of header.rows) if (one.request === number || one.request_id.includes(wanted) || one.tenant.includes(wanted)) found.requests.push({ ...one, life, number: one.request });
    const step = hasAnswer(`api/step/${life}/${number}`) ? await stepInFile(life, "step", number) : null;
    if (step) found.steps.push({ life, step: number, now_ns: step[1] });
  }
  found.requests.sort((one, other) => (other.request_id === wanted || other.number === number) - (one.request_id === wanted || one.number === number));
  return { ...found, requests: found.requests.slice(0, MAX_FOUND), is_cut: found.requests.length > MAX_FOUND };
}

function frame(name, query) {
  const key = JSON.stringify([name, query]);
  if (!frames.has(key)) frames.set(key, frameFromFile(name, query).then(decode));
  return frames.get(key);
}
