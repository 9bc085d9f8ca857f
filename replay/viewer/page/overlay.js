// What lies over the slices: the axis, the recording's marks and the reader's, arrows from a preempted request to the
// one it gave way to, the selected area and row.
import { ticks, tickLabel } from "./axis.js";
import { state } from "./store.js";
import { colours } from "./theme.js";
import { GUTTER, plotWidth, size, xOf, yOf } from "./view.js";

export const AXIS_HEIGHT = 24;
export const MARKS_HEIGHT = 18;
const MAX_ARROWS = 300;
const SHAPES = { thrashing: "▲", starvation: "◆", throttled: "▽", incident: "✱", gap: "▨", divergence: "✖", mismatch: "✖", error: "✖", restart: "↻", audit: "✓" };

/** Lines at round values, behind all else. */
export function drawGrid(context) {
  context.fillStyle = colours().line;
  for (const value of axisTicks().values) if (xOf(value) >= GUTTER) context.fillRect(Math.round(xOf(value)), AXIS_HEIGHT - 6, 1, size.height);
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

/** Marks with a length shade the rows; each has a sign in the lane above them. Returns where they are, for hits. */
export function drawMarks(context, marks) {
  const { mark, faint, gutter, arrow } = colours();
  context.fillStyle = gutter;
  context.fillRect(0, AXIS_HEIGHT, GUTTER, MARKS_HEIGHT);
  context.fillStyle = faint;
  context.fillText("marks", 8, AXIS_HEIGHT + 13);
  const places = [];
  for (const one of marks) {
    const x0 = xOf(one.at);
    const x1 = one.until === null ? x0 : xOf(one.until);
    if (x1 < GUTTER || x0 > size.width) continue;
    if (x1 > x0 + 1) {
      context.fillStyle = mark;
      context.globalAlpha = 0.1;
      const left = Math.max(GUTTER, x0);
      context.fillRect(left, AXIS_HEIGHT, x1 - left, size.height);
      context.globalAlpha = 0.7;
      context.fillRect(left, AXIS_HEIGHT + MARKS_HEIGHT - 3, x1 - left, 3);
      context.globalAlpha = 1;
    }
    if (x0 < GUTTER) continue;
    context.fillStyle = one.isOther ? arrow : mark;
    context.globalAlpha = x1 > x0 + 1 ? 1 : 0.22;
    context.fillRect(Math.round(x0), AXIS_HEIGHT + MARKS_HEIGHT, 1, size.height);
    if (x1 > x0 + 1) context.fillRect(Math.round(x1), AXIS_HEIGHT + MARKS_HEIGHT, 1, size.height);
    context.globalAlpha = 1;
    context.fillText(`${SHAPES[one.kind] || "●"}${one.isOther ? "ᴮ" : ""}`, x0 + 2, AXIS_HEIGHT + 13);
    places.push({ x: x0, mark: one });
  }
  return places;
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

/** Arrows between rows that are known; those of the chosen request strong. Returns how many were left out. */
export function drawArrows(context, arrows, rowOf, middle) {
  const shown = arrows.filter((one) => one.at >= state.from && one.at <= state.to);
  for (const one of shown.slice(0, MAX_ARROWS)) {
    const from = rowOf(one.victim);
    const to = rowOf(one.beneficiary);
    if (from === undefined || to === undefined) continue;
    const isChosen = state.request !== null && (one.victim === state.request || one.beneficiary === state.request);
    arrow(context, xOf(one.at), yOf(from + middle), yOf(to + middle), isChosen, one.chain_length > 1);
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
