// Where a value of the axis lies on the screen, and back; zoom and pan within the recording's bounds.
// It draws nothing and asks nothing.
import { bounds, state, update } from "./store.js";

export const GUTTER = 196; // px left of the plot: the rows' names
const NARROWEST = { time: 1000, step: 1 }; // 1 µs, one step
const BEYOND = 0.02; // share of the span that may be seen before and after the recording

/** Measured by the timeline at each resize, in CSS pixels. */
export const size = { width: 800, height: 600, top: 0 };

export function plotWidth() {
  return Math.max(50, size.width - GUTTER);
}

export function xOf(value) {
  return GUTTER + ((value - state.from) / (state.to - state.from)) * plotWidth();
}

export function valueAt(x) {
  return state.from + ((x - GUTTER) / plotWidth()) * (state.to - state.from);
}

export function yOf(row) {
  return size.top + (row - state.row) * state.rowHeight;
}

export function rowAt(y) {
  return Math.floor(state.row + (y - size.top) / state.rowHeight);
}

export function rowsShown() {
  return Math.ceil((size.height - size.top) / state.rowHeight) + 1;
}

/** Make the span `factor` times as long, with the value under `at` staying where it is. */
export function zoom(factor, at = (state.from + state.to) / 2) {
  const span = (state.to - state.from) * factor;
  const share = (at - state.from) / (state.to - state.from);
  show(at - span * share, at + span * (1 - share));
}

/** Move by `share` of what is shown. */
export function pan(share) {
  const by = (state.to - state.from) * share;
  show(state.from + by, state.to + by);
}

/** Show [from, to], moved and cut so that it lies within the recording. */
export function show(from, to) {
  const [first, last] = bounds();
  const whole = (last - first) * (1 + 2 * BEYOND);
  const span = Math.min(Math.max(to - from, NARROWEST[state.axis]), whole);
  const middle = (from + to) / 2;
  const lowest = first - (last - first) * BEYOND;
  const start = Math.min(Math.max(middle - span / 2, lowest), lowest + whole - span);
  update({ from: start, to: start + span });
}

export function showAll() {
  const [first, last] = bounds();
  const edge = (last - first) * BEYOND;
  update({ from: first - edge, to: last + edge });
}

/** Show the row, moving no further than needed. */
export function showRow(row) {
  const full = Math.max(1, Math.floor((size.height - size.top) / state.rowHeight));
  if (row < state.row + 1) scrollTo(row - 1);
  else if (row > state.row + full - 2) scrollTo(row - full + 2);
}

let numRows = 0;

export function setNumRows(count) {
  numRows = count;
}

export function getNumRows() {
  return numRows;
}

export function scrollTo(row) {
  const full = Math.floor((size.height - size.top) / state.rowHeight);
  update({ row: Math.max(0, Math.min(row, numRows - full + 1)) });
}
