// Counter strips above the rows: smallest to greatest of each pixel as a band, the mean as a line.
import { grouped } from "./format.js";
import { state } from "./store.js";
import { colours, scheme, STRIP_COLOURS } from "./theme.js";
import { GUTTER, plotWidth, size } from "./view.js";

export const STRIPS = [
  { title: "requests", names: ["running", "waiting"], unit: "" },
  { title: "tokens a step", names: ["budget_used", "prefill_tokens"], unit: "" },
  { title: "free blocks", names: ["free_blocks"], unit: "" },
  { title: "step time, ms", names: ["step_ms", "execute_ms", "beside_ms", "sample_ms"], unit: " ms" },
];
export const STRIP_NAMES = STRIPS.flatMap((strip) => strip.names).join(",");
export const STRIP_HEIGHT = 42;
const DASHES = [[], [5, 2], [2, 2], [7, 2, 2, 2]];
const PAD = 5;
const BRIDGED = 2; // pixels of a tile without a step that a line goes over

/** Draw all strips below `top` from the tiles that cover what is shown; with `others` the first line of both. */
export function drawStrips(context, tiles, others, top) {
  STRIPS.forEach((strip, index) => drawStrip(context, tiles, others, strip, top + index * STRIP_HEIGHT));
}

function drawStrip(context, tiles, others, strip, top) {
  const { line, text, faint, gutter } = colours();
  const names = others ? strip.names.slice(0, 1) : strip.names;
  const lines = others ? [[tiles, names[0]], [others, names[0]]] : names.map((name) => [tiles, name]);
  const greatest = Math.max(greatestShown(tiles, names), others ? greatestShown(others, names) : 0);
  const y = (value) => top + STRIP_HEIGHT - 2 - (value / greatest) * (STRIP_HEIGHT - PAD - 2);
  context.save();
  context.beginPath();
  context.rect(GUTTER, top, plotWidth(), STRIP_HEIGHT);
  context.clip();
  lines.forEach(([from, name], index) => {
    context.fillStyle = context.strokeStyle = STRIP_COLOURS[scheme()][index];
    context.setLineDash(DASHES[index]);
    for (const tile of from) drawSeries(context, tile, name, y);
  });
  context.restore();
  context.fillStyle = gutter;
  context.fillRect(0, top, GUTTER, STRIP_HEIGHT);
  context.fillStyle = line;
  context.fillRect(0, top + STRIP_HEIGHT - 1, size.width, 1);
  context.fillStyle = text;
  context.fillText(strip.title, 8, top + 13);
  context.fillStyle = faint;
  context.textAlign = "right";
  context.fillText(Number.isFinite(greatest) ? grouped(Number(greatest.toPrecision(3))) : "", GUTTER - 6, top + 13);
  context.textAlign = "left";
  drawKey(context, others ? ["A", "B"].map((side) => `${side}: ${names[0]}`) : strip.names, top);
}

function drawKey(context, names, top) {
  if (names.length < 2) return;
  context.font = "10px system-ui, sans-serif";
  names.slice(0, 4).forEach((name, index) => {
    const x = 8 + (index % 2) * 92;
    const y = top + 25 + Math.floor(index / 2) * 11;
    context.fillStyle = STRIP_COLOURS[scheme()][index];
    context.fillRect(x, y - 4, 8, 3);
    context.fillStyle = colours().faint;
    context.fillText(name.replaceAll("_", " ").replace(" ms", ""), x + 12, y);
  });
  context.font = "12px system-ui, sans-serif";
}

function drawSeries(context, tile, name, y) {
  const { [`${name}.min`]: low, [`${name}.max`]: high, [`${name}.mean`]: mean } = tile.columns;
  if (!mean) return;
  const { from, to } = tile.header;
  const width = (to - from) / mean.length;
  const left = Math.max(0, Math.floor((state.from - from) / width) - 1);
  const right = Math.min(mean.length, Math.ceil((state.to - from) / width) + 1);
  const scale = plotWidth() / (state.to - state.from);
  const x = (value) => GUTTER + (value - state.from) * scale;
  context.globalAlpha = 0.25;
  context.beginPath();
  for (let i = left; i < right; i++) {
    if (high[i] > low[i] && y(low[i]) - y(high[i]) > 1) context.rect(x(from + i * width), y(high[i]), Math.max(1, width * scale), y(low[i]) - y(high[i]));
  }
  context.fill();
  context.globalAlpha = 1;
  context.lineWidth = 1;
  context.beginPath();
  const stepMs = tile.columns["step_ms.max"];
  let held = -Infinity; // a value holds as long as its step; what lies between steps is idle, and drawn as nothing
  for (let i = left; i < right; i++) {
    if (Number.isNaN(mean[i])) continue;
    const begin = from + i * width;
    const end = begin + Math.max(width, state.axis === "step" ? 1 : (stepMs?.[i] || 0) * 1e6);
    if (begin > held + width * BRIDGED) context.moveTo(x(begin), y(mean[i]));
    else context.lineTo(x(begin), y(mean[i]));
    context.lineTo(x(end), y(mean[i]));
    held = end;
  }
  context.stroke();
}

function greatestShown(tiles, names) {
  let greatest = 0;
  for (const tile of tiles) {
    const { from, to } = tile.header;
    for (const name of names) {
      const high = tile.columns[`${name}.max`] || [];
      const width = (to - from) / Math.max(1, high.length);
      const right = Math.min(high.length, Math.ceil((state.to - from) / width));
      for (let i = Math.max(0, Math.floor((state.from - from) / width)); i < right; i++) if (high[i] > greatest) greatest = high[i];
    }
  }
  return greatest || 1;
}

/** The values under a position of the axis: [[name, mean, min, max]]. */
export function valuesAt(tiles, strip, value) {
  const tile = tiles.findLast((one) => value >= one.header.from && value < one.header.to);
  if (!tile) return [];
  const { from, to } = tile.header;
  return strip.names.flatMap((name) => {
    const mean = tile.columns[`${name}.mean`];
    const at = mean ? nearestKnown(mean, Math.floor(((value - from) / (to - from)) * mean.length)) : -1;
    return at < 0 ? [] : [[name, mean[at], tile.columns[`${name}.min`][at], tile.columns[`${name}.max`][at]]];
  });
}

function nearestKnown(mean, index) {
  for (let at = Math.min(index, mean.length - 1); at >= 0; at--) if (!Number.isNaN(mean[at])) return at;
  return -1;
}
