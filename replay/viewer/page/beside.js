// Two recordings side by side: who stands beside whom, what differs, and the way from one difference to the next.
import { askFrame, askJson, lookAt } from "./api.js";
import { bounds, state, subscribe, update } from "./store.js";
import { show, showRow } from "./view.js";

const ROWS_AT_ONCE = 4096;
const SHARE = 1 / 12; // of the recording that a difference is shown in, at most

/** answer: api/beside/pairs of the life shown, null until it is there; failure: why not. */
export const pairs = { answer: null, failure: null, life: 0 };

/** Ask for it whenever two lanes are shown and it is another life's, or a recording grew. */
export function followPairs() {
  subscribe((patch) => {
    if (state.beside && (pairs.life !== state.life || "recording" in patch)) load();
  });
  if (state.beside) load();
}

async function load() {
  pairs.life = state.life;
  try {
    pairs.answer = await askJson("api/beside/pairs", { life: state.life });
    pairs.failure = null;
  } catch (error) {
    pairs.failure = error;
  }
  update({ note: "" });
}

/** What the other's times are moved by, ns; 0 where one recording is shown alone. */
export function shift() {
  return state.beside && state.which === "other" ? pairs.answer?.shift_ns ?? 0 : 0;
}

/** Both in lanes, what differs first; or one alone. */
export function setBeside(isOn) {
  lookAt("");
  update({ beside: isOn ? 1 : 0, which: "", request: null, step: null, group: isOn ? "difference" : "tenant", row: 0, alive: 0, rowHeight: isOn ? 26 : 18 });
}

/** Inspectors tell of this recording from now on: "" or "other". */
export function inspect(which) {
  lookAt(which);
  update({ which });
}

/** To the difference `by` places further on, from before the first to behind the last and round again. */
export function stepDifference(by) {
  const num = pairs.answer?.differences.length ?? 0;
  if (!num) return update({ note: pairs.failure?.message ?? (pairs.answer ? "no request is served otherwise" : "the two are still being compared") });
  const from = state.difference ?? (by > 0 ? -1 : num);
  return goToDifference((from + by + num) % num);
}

export async function goToDifference(index) {
  const one = pairs.answer?.differences[index];
  if (!one) return;
  inspect("");
  update({ difference: index, request: one.request, panel: "compare" });
  const [first, last] = bounds();
  const span = Math.min(state.to - state.from, (last - first) * SHARE);
  const at = state.axis === "time" ? one.at_ns : (one.left ?? one.right).step;
  show(at - span / 2, at + span / 2);
  const row = await rowOfPair(one.request, "").catch(() => null);
  if (row) showRow(row.row);
}

/** The row of a request of the left ("") or the other recording; null when the filter hides it. */
export async function rowOfPair(request, which) {
  for (let first = 0; ; first += ROWS_AT_ONCE) {
    const query = { life: state.life, axis: "step", from: 0, to: 1, group: state.group, filter: state.filter, side: "left", width: 1, rows: `${first},${ROWS_AT_ONCE}` };
    const { header } = await askFrame("api/beside/timeline", query);
    const found = header.rows.find((one) => (which === "other" ? one.other?.request : one.request) === request);
    if (found || first + ROWS_AT_ONCE >= header.num_rows) return found ?? null;
  }
}
