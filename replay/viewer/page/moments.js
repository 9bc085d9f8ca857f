// Steps ⇄ times, rows of requests, and the moves that lead to something: every link in the page goes through here.
import { askFrame, askJson, embedded, lookAt, post } from "./api.js";
import { rowOfPair, shift } from "./beside.js";
import { stepInFile } from "./file_search.js";
import { slicesOf } from "./hits.js";
import { bounds, life, state, update } from "./store.js";
import { show, showAll, showRow } from "./view.js";

const ROWS_AT_ONCE = 4096;

/** The other recording at the same place, or back: what differs jumps to the eye. */
export async function showOther(which) {
  lookAt(which);
  update({ recording: await askJson("api/recording"), which });
}

/** The step under way at `ns`, or the nearest before; null when none is known. */
export async function stepAt(ns) {
  const found = await stepBy("time", Math.round(ns - shift()));
  return found ? found[0] : null;
}

/** [planned, completed] of a step, ns since the life's opening; null when it is not known. */
export async function timesOf(step) {
  const found = await stepBy("step", Math.round(step));
  if (!found) return null;
  const [, planned, completed] = found;
  return [planned + shift(), (completed ?? planned) + shift()];
}

/** [step, planned, completed] by its number, or the last that was planned until a time. */
async function stepBy(at, value) {
  if (embedded) return stepInFile(state.life, at, value);
  const where = at === "step" ? `step = ${BigInt(value)}` : `planned_ns - opened_ns <= ${BigInt(value)} ORDER BY planned_ns DESC`;
  const sql = `SELECT step, planned_ns - opened_ns, completed_ns - opened_ns FROM steps JOIN lives USING (life) WHERE life = ${state.life} AND ${where} LIMIT 1`;
  return (await post("api/sql", { sql, limit: 1 })).rows[0] ?? null;
}

/** The other axis over the same stretch. */
export async function switchAxis() {
  const { from, to, axis } = state;
  const other = axis === "time" ? "step" : "time";
  const range = axis === "time" ? await stepsOver(from, to) : await timesOver(from, to);
  update({ axis: other, area: null, marked: [] });
  if (range && range[1] > range[0]) show(...range);
  else showAll();
}

async function stepsOver(from, to) {
  const [first, last] = [await stepAt(from), await stepAt(to)];
  return last === null ? null : [first ?? life().first_step, last + 1];
}

async function timesOver(from, to) {
  const one = life();
  const inside = (step) => Math.min(Math.max(Math.floor(step), one.first_step), one.last_step);
  const [first, last] = [await timesOf(inside(from)), await timesOf(inside(to - 1e-9))];
  return first && last ? [first[0], last[1]] : null;
}

/** Open the step inspector; move only when the step lies outside of what is shown. */
export async function goToStep(step, inLife = state.life) {
  update({ life: inLife, panel: "step", step });
  const range = state.axis === "step" ? [step, step + 1] : await timesOf(step).catch(() => null);
  if (range) bring(...range);
}

export async function goToRequest(request, inLife = state.life, at = null) {
  update({ life: inLife, panel: "request", request });
  const row = await rowOf(request).catch(() => null);
  if (row) {
    showRow(row.row);
    if (state.axis === "time") bring(at ?? row.arrival_ns, at ?? row.end_ns ?? bounds()[1]);
  }
}

export function goToBlock(block, step = state.step) {
  update({ panel: "blocks", block, blockStep: step ?? life().last_step });
}

function bring(from, to) {
  if (to < state.from || from > state.to) {
    const span = state.to - state.from;
    show((from + to) / 2 - span / 2, (from + to) / 2 + span / 2);
  }
}

/** The request's line of the timeline's header under the grouping shown; null when the filter hides it. */
export async function rowOf(request) {
  if (state.beside) return rowOfPair(request, state.which);
  for (let first = 0; ; first += ROWS_AT_ONCE) {
    const query = { life: state.life, axis: state.axis, group: state.group, filter: state.filter, width: 1, rows: `${first},${ROWS_AT_ONCE}` };
    const { header } = await askFrame("api/timeline", query);
    const found = header.rows.find((one) => one.request === request);
    if (found || first + ROWS_AT_ONCE >= header.num_rows || embedded) return found || null;
  }
}

/** The selected request's next slice (`by` 1) or the one before (-1) into the middle, as Perfetto's `.` and `,` do. */
export async function goToSlice(timeline, by) {
  const row = state.request === null ? null : await rowOf(state.request).catch(() => null);
  if (!row) return update({ note: "select a request first: click its row" });
  const middle = (state.from + state.to) / 2;
  const near = (state.to - state.from) * 1e-6;
  const begins = slicesOf(timeline.shown || [], row.row).map(({ from, to }) => (from + to) / 2).filter((at) => (by > 0 ? at > middle + near : at < middle - near));
  const half = (state.to - state.from) / 2;
  if (begins.length) {
    const at = by > 0 ? Math.min(...begins) : Math.max(...begins);
    show(at - half, at + half);
  } else update({ note: by > 0 ? "no slice of it lies behind" : "no slice of it lies before" });
  return showRow(row.row);
}

/** The selected request's life becomes the selected area: its aggregates. */
export async function selectLife() {
  const row = state.request === null ? null : await rowOf(state.request).catch(() => null);
  if (!row) return update({ note: "select a request first: click its row" });
  const range = await lifeOf(row);
  return update({ area: [...range, row.row, row.row], panel: "area" });
}

async function lifeOf(row) {
  if (state.axis === "time") return [row.arrival_ns, row.end_ns ?? bounds()[1]];
  return (await stepsOver(row.arrival_ns, row.end_ns ?? life().to_ns)) || bounds();
}

/** Show the selected request's whole life; without one, everything. */
export async function fitSelection() {
  const row = state.request === null ? null : await rowOf(state.request).catch(() => null);
  if (!row) return state.area ? show(state.area[0], state.area[1]) : showAll();
  const [first, last] = await lifeOf(row);
  const edge = Math.max((last - first) * 0.05, 1);
  show(first - edge, last + edge);
  return showRow(row.row);
}
