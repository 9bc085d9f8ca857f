// The address ⇄ what is shown: opening the same link restores the same view.
import { state, subscribe, update } from "./store.js";
import { showAll } from "./view.js";

const NUMBERS = ["life", "from", "to", "row", "rowHeight", "alive", "step", "request", "block", "blockStep", "beside", "difference"];
const TEXTS = ["which", "axis", "group", "filter", "panel", "sql", "query", "other", "theme"];
const LISTS = ["area", "marked"];
const DEFAULTS = { ...state };
const WRITE_AFTER_MS = 120; // browsers refuse more than about 100 writes in ten seconds

/** The part of the address behind #, for what is shown now. */
export function hash() {
  const parts = new URLSearchParams();
  for (const name of [...NUMBERS, ...TEXTS]) {
    const always = name === "life" || name === "from" || name === "to";
    if (always || (state[name] !== DEFAULTS[name] && state[name] !== null)) parts.set(name, String(state[name]));
  }
  for (const name of LISTS) if (state[name]?.length) parts.set(name, state[name].join(","));
  return `#${parts}`;
}

/** hash → the patch of `state` that it says; unknown names and unreadable numbers are left away. */
export function parse(text) {
  const parts = new URLSearchParams(text.replace(/^#/, ""));
  const patch = {};
  for (const name of NUMBERS) {
    const value = parts.has(name) ? Number(parts.get(name)) : NaN;
    if (Number.isFinite(value)) patch[name] = value;
  }
  for (const name of TEXTS) if (parts.has(name)) patch[name] = parts.get(name);
  for (const name of LISTS) {
    const values = (parts.get(name) || "").split(",").filter(Boolean).map(Number);
    if (values.length && values.every(Number.isFinite)) patch[name] = values;
  }
  if (patch.axis && patch.axis !== "step") patch.axis = "time";
  if (!(patch.to > patch.from)) { delete patch.from; delete patch.to; }
  return patch;
}

/** Keep the address true from now on, and follow it when the reader edits it or goes back. */
export function followLink() {
  let timer = 0;
  written = location.hash;
  subscribe(() => {
    if (!timer) timer = setTimeout(() => { timer = 0; write(); }, WRITE_AFTER_MS);
  });
  addEventListener("hashchange", () => {
    written = location.hash;
    if (written === hash()) return;
    const asked = parse(location.hash);
    const isElsewhere = (asked.axis ?? DEFAULTS.axis) !== state.axis || (asked.life ?? state.life) !== state.life;
    update({ ...restorable(), ...asked });
    if (isElsewhere && !("from" in asked)) showAll(); // what was shown is no range of this axis
  });
}

let written = ""; // as it stood in the address last

/** Not over what the reader has just written there: that is followed first. */
function write() {
  if (location.hash !== written || written === hash()) return;
  history.replaceState(null, "", hash());
  written = location.hash;
}

function restorable() {
  return Object.fromEntries([...TEXTS, ...LISTS, "step", "request", "block", "blockStep", "beside", "difference"].map((name) => [name, DEFAULTS[name]]));
}
