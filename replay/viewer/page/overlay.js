// What lies over the slices: the axis, the recording's marks and the reader's, arrows from a preempted request to the
// one it gave way to, the selected area and row.
import { ticks, tickLabel } from "./axis.js";
import { state } from "./store.js";
import { colours } from "./theme.js";
import { GUTTER, plotWidth, size, xOf, yOf } from "./view.js";

export const AXIS_HEIGHT = 24;
export const MARKS_HEIGHT = 18;
const MAX_ARROWS = 300;
const SIGN = 9; // px that a mark's sign takes
export const SHAPES = { thrashing: "▲", starvation: "◆", throttled: "▽", incident: "✱", gap: "▨", divergence: "✖", mismatch: "✖", error: "✖", restart: "↻", audit: "✓" };

/** Where lines at round values go, px from the left. */
export function gridLines() {
  return axisTicks().values.map((value) => Math.round(xOf(value))).filter((x) => x >= GUTTER);
}

/** Those lines down to `bottom`, behind all else; pictures have them of their own. */
export function drawGrid(context, bottom) {
  context.fillStyle = colours().line;
  for (const x of gridLines()) context.fillRect(x, AXIS_HEIGHT - 6, 1, bottom - AXIS_HEIGHT + 6);
}

export function drawAxis(context) {
  const { gutter, faint, line } = colours();
  context.fillStyle = gutter;
  context.fillRect(0, 0, size.width, AXIS_HEIGHT);
  const { values, step } = axisTicks();
  for (const value of values) {
    const x = Math.round(xOf(value));
    if (x < GUTTER) continue;
    context.fillStyle = line;
    context.fillRect(x, AXIS_HEIGHT - 7, 1, 7);
    context.fillStyle = faint;
    context.fillText(tickLabel(value, step, state.axis), x + 4, 15);
  }
  context.fillStyle = gutter;
  context.fillRect(0, 0, GUTTER, AXIS_HEIGHT);
  context.fillStyle = faint;
  context.fillText(state.axis === "time" ? "time since the opening" : "step", 8, 15);
}

function axisTicks() {
  return ticks(state.from, state.to, plotWidth() / 85, state.axis === "step");
}

/** Marks with a length shade the rows; each has a sign in the lane above them, which stands for all within its width.
 * `marks` in order of `at`. Returns where signs are, for hits: {x, mark, count}. */
export function drawMarks(context, marks) {
  const { faint, gutter } = colours();
  context.fillStyle = gutter;
  context.fillRect(0, AXIS_HEIGHT, GUTTER, MARKS_HEIGHT);
  context.fillStyle = faint;
  context.fillText("marks", 8, AXIS_HEIGHT + 13);
  const places = [];
  let lastLine = -Infinity;
  for (const one of marks) {
    if (one.at > state.to) break;
    const x0 = xOf(one.at);
    const x1 = one.until === null ? x0 : xOf(one.until);
    if (x1 < GUTTER) continue;
    const isLong = x1 > x0 + 1;
    if (isLong) drawStretch(context, x0, x1);
    if (x0 < GUTTER) continue;
    const x = Math.round(x0);
    if (isLong || x > lastLine) drawLine(context, x, one, isLong);
    lastLine = Math.max(lastLine, x);
    const last = places[places.length - 1];
    if (last && x0 < last.x + SIGN && !isLong) last.count += 1;
    else places.push({ x: x0, mark: one, count: 1 });
  }
  for (const { x, mark } of places) {
    context.fillStyle = mark.isOther ? colours().arrow : colours().mark;
    context.fillText(`${SHAPES[mark.kind] || "●"}${mark.isOther ? "ᴮ" : ""}`, x + 2, AXIS_HEIGHT + 13);
  }
  return places;
}

function drawStretch(context, x0, x1) {
  const left = Math.max(GUTTER, x0);
  context.fillStyle = colours().mark;
  context.globalAlpha = 0.1;
  context.fillRect(left, AXIS_HEIGHT, x1 - left, size.height);
  context.globalAlpha = 0.7;
  context.fillRect(left, AXIS_HEIGHT + MARKS_HEIGHT - 3, x1 - left, 3);
  context.fillRect(Math.round(x1), AXIS_HEIGHT + MARKS_HEIGHT, 1, size.height);
  context.globalAlpha = 1;
}

function drawLine(context, x, one, isLong) {
  context.fillStyle = one.isOther ? colours().arrow : colours().mark;
  context.globalAlpha = isLong ? 1 : 0.22;
  context.fillRect(x, AXIS_HEIGHT + MARKS_HEIGHT, 1, size.height);
  context.globalAlpha = 1;
}

/** The reader's own marks, set with M. */
export function drawOwnMarks(context) {
  context.fillStyle = colours().chosen;
  state.marked.forEach((value, index) => {
    const x = Math.round(xOf(value));
    if (x < GUTTER) return;
    context.fillRect(x, AXIS_HEIGHT, 2, size.height);
    context.fillRect(x, 2, 16, 14);
    context.fillStyle = "#000000";
    context.fillText(String(index + 1), x + 4, 13);
    context.fillStyle = colours().chosen;
  });
}

/** Where the pointer is, or the inspected step: a line, or as wide as it is. */
export function drawCursor(context, [from, to]) {
  context.fillStyle = colours().chosen;
  context.globalAlpha = 0.35;
  const x = xOf(from);
  if (x >= GUTTER) context.fillRect(x, AXIS_HEIGHT, Math.max(1, xOf(to) - x), size.height);
  context.globalAlpha = 1;
}

/** Arrows of a lane between rows that are known (request → row); those of the chosen request strong, and never left
 * out before others. Returns how many were left out. */
export function drawArrows(context, arrows, rowOf, lane) {
  const isOf = (one) => state.request !== null && (!state.beside || state.which === lane.which) && (one.victim === state.request || one.beneficiary === state.request);
  const inView = arrows.filter((one) => one.at >= state.from && one.at <= state.to);
  const shown = inView.length > MAX_ARROWS ? [...inView.filter(isOf), ...inView.filter((one) => !isOf(one))] : inView;
  const middle = lane.top + lane.height / 2;
  for (const one of shown.slice(0, MAX_ARROWS)) {
    const [from, to] = [rowOf.get(one.victim), rowOf.get(one.beneficiary)];
    if (from === undefined || to === undefined) continue;
    arrow(context, xOf(one.at), yOf(from + middle), yOf(to + middle), isOf(one), one.chain_length > 1);
  }
  return Math.max(0, shown.length - MAX_ARROWS);
}

function arrow(context, x, y0, y1, isChosen, isCascade) {
  if (Math.max(y0, y1) < size.top || Math.min(y0, y1) > size.height) return;
  context.strokeStyle = context.fillStyle = isCascade ? colours().mark : colours().arrow;
  context.globalAlpha = isChosen ? 1 : 0.55;
  context.lineWidth = isChosen ? 2.5 : 1.2;
  context.setLineDash(isCascade ? [4, 2] : []);
  const bend = Math.min(28, 8 + Math.abs(y1 - y0) / 6);
  context.beginPath();
  context.moveTo(x, y0);
  context.bezierCurveTo(x + bend, y0, x + bend, y1, x + 4, y1);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x, y1);
  context.lineTo(x + 7, y1 - 4);
  context.lineTo(x + 7, y1 + 4);
  context.fill();
  context.globalAlpha = 1;
}

export function drawArea(context) {
  if (!state.area) return;
  const [from, to, firstRow, lastRow] = state.area;
  const left = Math.max(GUTTER, xOf(from));
  const top = Math.max(size.top, yOf(firstRow));
  context.fillStyle = colours().area;
  context.strokeStyle = colours().faint;
  context.fillRect(left, top, xOf(to) - left, yOf(lastRow + 1) - top);
  context.strokeRect(left, top, xOf(to) - left, yOf(lastRow + 1) - top);
}
