// The view as a drawing, for a report: slices with patterns, and all that lies over and above them, to scale and sharp.
import { visible } from "./format.js";
import { laneOf, lanes } from "./lanes.js";
import { AXIS_HEIGHT, drawArea, drawArrows, drawAxis, drawGrid, drawMarks, drawOwnMarks, MARKS_HEIGHT } from "./overlay.js";
import { drawRowNames } from "./rows.js";
import { state } from "./store.js";
import { drawTitle, linesOf, STRIP_HEIGHT, STRIPS } from "./strips.js";
import { escaped, SvgContext } from "./svg_context.js";
import { colours, KINDS, kindColour, scheme, STRIP_COLOURS } from "./theme.js";
import { GUTTER, plotWidth, rowsShown, size, xOf, yOf } from "./view.js";

const MAX_BARS = 60000;
const DASHES = [[], [5, 2], [2, 2], [7, 2, 2, 2]];
const CAPTION = 22; // px below the view

export function svgOf(timeline) {
  const { back, faint } = colours();
  const context = new SvgContext(timeline.context);
  context.fillStyle = back;
  context.fillRect(0, 0, size.width, size.height + CAPTION);
  drawGrid(context, size.height);
  STRIPS.forEach((strip, index) => drawStrip(context, strip, timeline, AXIS_HEIGHT + MARKS_HEIGHT + index * STRIP_HEIGHT));
  const rows = () => { context.beginPath(); context.rect(GUTTER, size.top, plotWidth(), size.height - size.top); context.clip(); };
  context.save();
  rows();
  const { bars, numLeftOut } = barsOf(timeline);
  context.add(bars.join(""));
  context.restore();
  drawMarks(context, timeline.marks);
  context.save();
  rows();
  const arrows = [[timeline.arrows, timeline.known.rowOf], [timeline.otherArrows, timeline.known.rowOfOther]];
  lanes().forEach((lane, index) => drawArrows(context, ...arrows[index], lane));
  drawArea(context);
  context.restore();
  drawRowNames(context, timeline.known);
  drawAxis(context);
  drawOwnMarks(context);
  const said = `${visible(state.recording.name, 80)}${numLeftOut ? `; ${numLeftOut} slices are left out` : ""}`;
  context.fillStyle = back;
  context.fillRect(0, size.height, size.width, CAPTION);
  context.fillStyle = faint;
  context.fillText(said, 8, size.height + 15);
  const height = size.height + CAPTION;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${size.width}" height="${height}" viewBox="0 0 ${size.width} ${height}" font-family="system-ui, sans-serif"><title>${escaped(said)}</title><defs>${KINDS.map(patternOf).join("")}${context.clips.join("")}</defs>${context.elements.join("")}</svg>`;
}

/** Each counter's mean, held as long as its step. */
function drawStrip(context, strip, { shownCounters, shownOthers }, top) {
  const { lines, greatest } = linesOf(strip, shownCounters ?? [], shownOthers);
  const y = (value) => top + STRIP_HEIGHT - 2 - (value / greatest) * (STRIP_HEIGHT - 7);
  lines.forEach(([tiles, name], index) => {
    context.beginPath();
    for (const tile of tiles) trace(context, tile, name, y);
    context.strokeStyle = STRIP_COLOURS[scheme()][index];
    context.setLineDash(DASHES[index]);
    context.stroke();
  });
  context.setLineDash([]);
  context.fillStyle = colours().line;
  context.fillRect(GUTTER, top + STRIP_HEIGHT - 1, plotWidth(), 1);
  drawTitle(context, strip, greatest, shownOthers, top);
}

function trace(context, tile, name, y) {
  const mean = tile.columns[`${name}.mean`] ?? [];
  const { from, to } = tile.header;
  const width = (to - from) / mean.length;
  let held = -Infinity;
  for (let i = Math.max(0, Math.floor((state.from - from) / width)); i < mean.length && from + i * width < state.to; i++) {
    if (Number.isNaN(mean[i])) continue;
    const begin = Math.max(state.from, from + i * width);
    const length = state.axis === "step" ? 1 : (tile.columns["step_ms.max"]?.[i] || 0) * 1e6;
    const end = Math.min(state.to, from + i * width + Math.max(width, length));
    if (begin <= held + 2 * width) context.lineTo(xOf(begin), y(mean[i]));
    else context.moveTo(xOf(begin), y(mean[i]));
    context.lineTo(xOf(end), y(mean[i]));
    held = end;
  }
}

/** Slices in view, and how their requests ended. */
function barsOf(timeline) {
  const bars = [];
  let numLeftOut = 0;
  const put = (kind, x0, x1, row, lane) => {
    const [left, right] = [Math.max(GUTTER, x0), Math.min(size.width, x1)];
    if (right <= left || row + 1 < state.row || row > state.row + rowsShown()) return;
    if (bars.length >= MAX_BARS) numLeftOut += 1;
    else bars.push(barOf(KINDS[kind], left, right, yOf(row + lane.top), lane.height * state.rowHeight));
  };
  for (const tile of timeline.shown || []) {
    const { row: rows, kind, from, to } = tile.columns;
    const lane = laneOf(tile);
    for (let i = 0; i < rows.length; i++) put(kind[i], xOf(Math.max(from[i], tile.from)), xOf(Math.min(to[i], tile.to)), tile.header.rows[rows[i]].row, lane);
    tile.table?.ends.forEach((end, index) => { if (end >= tile.from && end < tile.to) put(tile.table.kinds[index], xOf(end) - 1, xOf(end) + 2, tile.table.rows[index], lane); });
  }
  return { bars, numLeftOut };
}

function barOf(kind, x0, x1, y, laneHeight) {
  const top = y + kind.top * laneHeight;
  return `<rect x="${x0.toFixed(2)}" y="${top.toFixed(2)}" width="${Math.max(0.5, x1 - x0).toFixed(2)}" height="${((kind.bottom - kind.top) * laneHeight).toFixed(2)}" fill="url(#${kind.name})"${kind.pattern === "hollow" ? ` stroke="${kindColour(KINDS.indexOf(kind))}"` : ""}/>`;
}

const STROKES = { solid: "M0 0H8V8H0Z", tick: "M0 0H8V8H0Z", dotted: "M0 0H4V8H0Z", diagonal: "M0 8L8 0H3L0 3ZM8 8V3L3 8Z", hollow: "M0 0H1V8H0Z", cross: "M0 0L8 8M8 0L0 8" };

function patternOf(kind, index) {
  const colour = kindColour(index);
  return `<pattern id="${kind.name}" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" fill="${colour}" fill-opacity="0.27"/><path d="${STROKES[kind.pattern]}" fill="${colour}" stroke="${kind.pattern === "cross" ? colour : "none"}" stroke-width="2"/></pattern>`;
}
