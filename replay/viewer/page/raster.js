// Slices → pixels. Tens of thousands of slices stand in one picture; writing pixels costs a fraction of one canvas call
// per slice, so panning stays smooth without a GPU. What a tile needs for that is looked up once and kept with it.
import { laneOf, partyOf } from "./lanes.js";
import { PERIOD, ink } from "./patterns.js";
import { KINDS } from "./theme.js";

const FINISHED = 5; // beyond the tiles' kinds: drawn where a request's last slice ends
const FAILED = 6;
const WELL = new Set(["stop", "length", "eos"]); // ends that a client asked for

/** A picture of width × height device pixels that slices are painted into, used again from frame to frame. */
export class Raster {
  /** ratio: device pixels of a CSS pixel */
  resize(width, height, ratio = 1) {
    this.ratio = ratio;
    if (this.image?.width === width && this.image.height === height) return;
    this.image = new ImageData(Math.max(1, width), Math.max(1, height));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** Begin a picture: `back` all over, then `bands` [{top, bottom, colour}] and `lines` down at these pixels. */
  begin(back, bands, lines, lineColour) {
    const { width } = this.image;
    this.numPainted = 0;
    this.pixels.fill(back);
    this.back = back;
    this.bands(bands);
    for (const x of lines) if (x >= 0 && x < width) for (let at = x; at < this.pixels.length; at += width) this.pixels[at] = lineColour;
  }

  bands(bands) {
    const { width, height } = this.image;
    for (const { top, bottom, colour } of bands) {
      const first = Math.min(height, Math.max(0, Math.round(top)));
      const beyond = Math.min(height, Math.max(first, Math.round(bottom)));
      this.pixels.fill(colour, first * width, beyond * width);
    }
  }

  /** Paint a tile's slices: `place` {from, scale, row, rowHeight} in device pixels; the tile's own span bounds them.
   * covers: something may have been painted there before. */
  paint(tile, place) {
    const { from, scale, row, rowHeight } = place;
    const { width, height } = this.image;
    const left = Math.max(0, Math.floor((tile.from - from) * scale));
    const right = Math.min(width, Math.ceil((tile.to - from) * scale));
    if (right <= left) return;
    const table = tableOf(tile);
    const lane = laneOf(tile);
    const laneHeight = lane.height * rowHeight;
    const inks = KINDS.map((_, kind) => ink(kind));
    const lastRow = row + height / rowHeight;
    for (let index = 0; index < table.rows.length; index++) {
      const at = table.rows[index];
      if (at + 1 < row || at > lastRow) continue;
      const y = (at - row + lane.top) * rowHeight;
      if (place.covers) this.wipe(left, right, y, laneHeight);
      this.slices(tile, table, index, { from, scale, left, right, y, laneHeight, inks });
      const end = table.ends[index];
      if (!(end >= tile.from && end < tile.to)) continue;
      const x = Math.floor((end - from) * scale);
      if (x + 2 > left && x - 1 < right) this.bar(Math.max(left, x - 1), Math.min(right, x + 2), y, laneHeight, table.kinds[index], inks);
    }
  }

  /** Those of one row: from the first that reaches into view to the last that begins there. */
  slices(tile, table, index, { from, scale, left, right, y, laneHeight, inks }) {
    const { kind: kinds, from: starts, to: ends } = tile.columns;
    const last = table.firsts[index + 1];
    const begin = from + left / scale;
    let low = table.firsts[index];
    for (let high = last; low < high;) {
      const middle = (low + high) >>> 1;
      if (starts[middle] < begin) low = middle + 1;
      else high = middle;
    }
    while (low > table.firsts[index] && ends[low - 1] > begin) low -= 1;
    for (let i = low; i < last; i++) {
      const x0 = Math.floor((starts[i] - from) * scale);
      if (x0 >= right) break;
      const x1 = Math.min(right, Math.max(x0 + 1, Math.floor((ends[i] - from) * scale)));
      if (x1 > left) this.bar(Math.max(left, x0), x1, y, laneHeight, kinds[i], inks);
    }
  }

  /** A finer tile replaces what a coarser one, which stood in for it, has painted. */
  wipe(left, right, y, laneHeight) {
    const { width, height } = this.image;
    const bottom = Math.min(height, Math.round(y + laneHeight));
    for (let line = Math.max(0, Math.round(y)); line < bottom; line++) this.pixels.fill(this.back, line * width + left, line * width + right);
  }

  bar(x0, x1, y, laneHeight, number, inks) {
    const { width, height } = this.image;
    const { pixels } = this;
    const kind = KINDS[number];
    const colours = inks[number];
    const y0 = Math.max(0, Math.round(y + kind.top * laneHeight));
    const y1 = Math.min(height, Math.max(y0 + 1, Math.round(y + kind.bottom * laneHeight)));
    this.numPainted += (x1 - x0) * Math.max(0, y1 - y0);
    const isPlain = kind.pattern === "solid" || kind.pattern === "tick";
    for (let line = y0; line < y1; line++) {
      const begin = line * width;
      if (isPlain || (kind.pattern === "hollow" && (line === y0 || line === y1 - 1))) {
        pixels.fill(colours[0], begin + x0, begin + x1);
        continue;
      }
      const from = (line % PERIOD) * PERIOD;
      for (let x = x0; x < x1; x++) pixels[begin + x] = colours[from + (x % PERIOD)];
    }
  }
}

/** Of each row of a tile: its number, where its slices begin in the columns, and where and how its request ends. */
function tableOf(tile) {
  if (tile.table) return tile.table;
  const { rows } = tile.header;
  const { row: indices, to: ends } = tile.columns;
  const firsts = new Uint32Array(rows.length + 1);
  for (let i = 0; i < indices.length; i++) firsts[indices[i] + 1] += 1;
  for (let index = 0; index < rows.length; index++) firsts[index + 1] += firsts[index];
  const table = { rows: Float64Array.from(rows, (one) => one.row), firsts, ends: new Float64Array(rows.length).fill(NaN), kinds: new Uint8Array(rows.length) };
  const lane = laneOf(tile);
  rows.forEach((one, index) => {
    const party = partyOf(one, lane);
    if (party?.reason === null || party?.reason === undefined) return;
    table.ends[index] = tile.header.axis === "time" ? party.end_ns : lastOf(ends, firsts[index], firsts[index + 1]);
    table.kinds[index] = WELL.has(party.reason) ? FINISHED : FAILED;
  });
  tile.table = table;
  return table;
}

function lastOf(ends, first, beyond) {
  let last = NaN;
  for (let i = first; i < beyond; i++) if (!(ends[i] <= last)) last = ends[i];
  return last;
}
