// The rows' names and groups at the left, and the bands behind the slices.
import { visible } from "./format.js";
import { isChosen, lanes } from "./lanes.js";
import { pixel } from "./patterns.js";
import { state } from "./store.js";
import { colours } from "./theme.js";
import { GUTTER, size, yOf } from "./view.js";

/** What is known of rows: row → {request, request_id, group, …} from the tiles' headers. */
export class KnownRows {
  constructor() {
    this.clear();
  }

  clear() {
    this.byRow = new Map();
    this.rowOf = new Map(); // request of the recording shown → row
    this.rowOfOther = new Map(); // of the one beside it
  }

  learn(tile, again = false) {
    if (tile.isLearnt && !again) return;
    tile.isLearnt = true;
    for (const one of tile.header.rows) {
      this.byRow.set(one.row, { ...one, label: visible(one.request_id, 64), groupLabel: visible(one.group ?? "", 40) });
      this.rowOf.set(one.request, one.row);
      if (one.other) this.rowOfOther.set(one.other.request, one.row);
    }
  }
}

/** Names in the gutter. Only what is shown is laid out. */
export function drawRowNames(context, known) {
  const { gutter, text, faint, line, chosen, mark } = colours();
  context.fillStyle = gutter;
  context.fillRect(0, size.top, GUTTER, size.height - size.top);
  context.save();
  context.beginPath();
  context.rect(0, size.top, GUTTER - 4, size.height - size.top);
  context.clip();
  const last = Math.ceil(state.row + (size.height - size.top) / state.rowHeight);
  for (let row = Math.floor(state.row); row <= last; row++) {
    const one = known.byRow.get(row);
    if (!one) continue;
    const y = yOf(row);
    if (isChosen(one)) {
      context.fillStyle = chosen;
      context.fillRect(0, y, 4, state.rowHeight);
    }
    if (state.rowHeight < 9) continue;
    context.fillStyle = text;
    context.font = `${Math.min(12, state.rowHeight - 4)}px system-ui, sans-serif`;
    context.fillText(one.label, 72, y + state.rowHeight - 5, GUTTER * 3);
    if (one.differs) {
      context.fillStyle = mark;
      context.fillText("≠", 60, y + state.rowHeight - 5);
    }
    if (state.beside && state.rowHeight >= 18) drawLaneNames(context, y, faint);
    const isFirst = row === Math.floor(state.row) || known.byRow.get(row - 1)?.group !== one.group;
    if (isFirst && one.groupLabel) {
      context.fillStyle = gutter;
      const width = state.beside ? 50 : 60;
      context.fillRect(6, y + 1, width + 2, state.rowHeight - 2);
      context.fillStyle = faint;
      context.fillText(clipped(context, one.groupLabel, width), 8, y + state.rowHeight - 5);
    }
  }
  context.restore();
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = line;
  context.fillRect(GUTTER - 1, 0, 1, size.height);
}

function drawLaneNames(context, y, colour) {
  const { font } = context;
  context.font = "9px system-ui, sans-serif";
  context.fillStyle = colour;
  for (const lane of lanes()) context.fillText(lane.name, GUTTER - 14, y + (lane.top + lane.height / 2) * state.rowHeight + 3);
  context.font = font;
}

/** What lies behind the slices, as bands of the picture: every second row a shade, a line between groups and lanes. */
export function bandsOf(known, ratio) {
  const { back, band, line, chosen } = colours();
  const [shade, edge, own] = [pixel(band), pixel(line), pixel(chosen, 0.25, back)];
  const height = state.rowHeight * ratio;
  const last = Math.ceil(state.row + (size.height - size.top) / state.rowHeight);
  const bands = [];
  for (let row = Math.floor(state.row); row <= last; row++) {
    const one = known.byRow.get(row);
    if (!one) continue;
    const top = (row - state.row) * height;
    if (isChosen(one)) bands.push({ top, bottom: top + height, colour: own });
    else if (row % 2) bands.push({ top, bottom: top + height, colour: shade });
    if (lanes().length > 1) bands.push({ top: top + height / 2, bottom: top + height / 2 + 1, colour: edge });
    const before = known.byRow.get(row - 1);
    if (before && before.group !== one.group) bands.push({ top, bottom: top + 1, colour: edge });
  }
  return bands;
}

function clipped(context, text, width) {
  let cut = text;
  while (cut.length > 1 && context.measureText(cut).width > width) cut = cut.slice(0, -1);
  return cut.length < text.length ? `${cut.slice(0, -1)}…` : cut;
}
