// Counter strips above the rows: smallest to greatest of each pixel as a band, the mean as a line.
import { grouped } from "./format.js";
import { pixel } from "./patterns.js";
import { paintSeries } from "./series.js";
import { state } from "./store.js";
import { colours, scheme, STRIP_COLOURS } from "./theme.js";
import { GUTTER } from "./view.js";

export const STRIPS = [
  { title: "requests", names: ["running", "waiting"], unit: "" },
  { title: "tokens a step", names: ["budget_used", "prefill_tokens"], unit: "" },
  { title: "free blocks", names: ["free_blocks"], unit: "" },
  { title: "step time, ms", names: ["step_ms", "execute_ms", "beside_ms", "sample_ms"], unit: " ms" },
];
export const STRIP_NAMES = STRIPS.flatMap((strip) => strip.names).join(",");
export const STRIP_HEIGHT = 42;
const DASHES = [[1], dashed(5, 2), dashed(2, 2), dashed(7, 2, 2, 2)];
const PAD = 5;

/** Draw all strips below `top` from the tiles that cover what is shown; with `others` the first line of both.
 * raster   as large as all strips' plots, in device pixels; lines: where the axis' lines cross them, likewise */
export function drawStrips(context, raster, tiles, others, top, lines) {
  const { back, line } = colours();
  const height = raster.image.height / STRIPS.length;
  const edges = STRIPS.map((_, index) => ({ top: (index + 1) * height - 1, bottom: (index + 1) * height, colour: pixel(line) }));
  raster.begin(pixel(back), [], lines, pixel(line));
  const greatest = STRIPS.map((strip, index) => paintStrip(raster, tiles, others, strip, index * height, height));
  raster.bands(edges);
  context.putImageData(raster.image, Math.round(GUTTER * raster.ratio), Math.round(top * raster.ratio));
  STRIPS.forEach((strip, index) => drawTitle(context, strip, greatest[index], others, top + index * STRIP_HEIGHT));
}

/** A strip's lines, [[tiles, name]], and the value at its top. */
export function linesOf(strip, tiles, others) {
  const names = others ? strip.names.slice(0, 1) : strip.names;
  const lines = others ? [[tiles, names[0]], [others, names[0]]] : names.map((name) => [tiles, name]);
  return { lines, greatest: Math.max(greatestShown(tiles, names), others ? greatestShown(others, names) : 0) };
}

/** Returns the value at the strip's top. */
function paintStrip(raster, tiles, others, strip, top, height) {
  const { lines, greatest } = linesOf(strip, tiles, others);
  const { ratio } = raster;
  const place = { top: top + PAD * ratio, bottom: top + height - 2 * ratio, greatest, thick: Math.max(1, Math.round(ratio)) };
  lines.forEach(([from, name], index) => {
    const look = { ...place, colour: pixel(STRIP_COLOURS[scheme()][index]), dash: DASHES[index] };
    for (const tile of from) paintSeries(raster, tile, name, look);
  });
  return greatest;
}

export function drawTitle(context, strip, greatest, others, top) {
  const { line, text, faint, gutter } = colours();
  context.fillStyle = gutter;
  context.fillRect(0, top, GUTTER, STRIP_HEIGHT);
  context.fillStyle = line;
  context.fillRect(0, top + STRIP_HEIGHT - 1, GUTTER, 1);
  context.fillStyle = text;
  context.fillText(strip.title, 8, top + 13);
  context.fillStyle = faint;
  context.textAlign = "right";
  context.fillText(Number.isFinite(greatest) ? grouped(Number(greatest.toPrecision(3))) : "", GUTTER - 6, top + 13);
  context.textAlign = "left";
  drawKey(context, others ? ["A", "B"].map((side) => `${side}: ${strip.names[0]}`) : strip.names, top);
}

/** Lengths drawn and left out in turn → which places of a period are drawn. */
function dashed(...lengths) {
  return lengths.flatMap((length, index) => Array(length).fill(index % 2 === 0));
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
