// Slices → pixels. Tens of thousands of slices stand in one picture; writing pixels costs a fraction of one canvas call
// per slice, so panning stays smooth without a GPU. Patterns are functions of the pixel, the same at every zoom.
import { KINDS, kindColour } from "./theme.js";

const FAINT = 70; // of 255: what lies between the strokes of a pattern
const FINISHED = 5; // beyond the tiles' kinds: drawn where a request's last slice ends
const FAILED = 6;
const WELL = new Set(["stop", "length", "eos"]); // ends that a client asked for

/** A picture of width × height device pixels that slices are painted into, used again from frame to frame. */
export class Raster {
  resize(width, height) {
    if (this.image?.width === width && this.image.height === height) return;
    this.image = new ImageData(Math.max(1, width), Math.max(1, height));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear() {
    this.pixels.fill(0);
  }

  /** Paint a tile's slices: `place` {from, scale, row, rowHeight} in device pixels; the tile's own span bounds them. */
  paint(tile, place) {
    const { row: rows, kind: kinds, from: starts, to: ends } = tile.columns;
    const { from, scale, row, rowHeight } = place;
    const { width, height } = this.image;
    const left = Math.max(0, Math.floor((tile.from - from) * scale));
    const right = Math.min(width, Math.ceil((tile.to - from) * scale));
    const lastRow = row + height / rowHeight;
    const inks = KINDS.map((_, kind) => ink(kind));
    const at = tile.header.rows.map((one) => one.row);
    const lastEnds = new Float64Array(at.length).fill(NaN);
    if (tile.from > -Infinity) this.wipe(left, right, tile, place);
    for (let i = 0; i < rows.length; i++) {
      const index = rows[i];
      const end = ends[i];
      if (!(end <= lastEnds[index])) lastEnds[index] = end;
      const x0 = Math.floor((starts[i] - from) * scale);
      if (x0 >= right || at[index] + 1 < row || at[index] > lastRow) continue;
      const x1 = Math.min(right, Math.max(x0 + 1, Math.floor((end - from) * scale)));
      if (x1 > left) this.bar(Math.max(left, x0), x1, (at[index] - row) * rowHeight, rowHeight, KINDS[kinds[i]], inks[kinds[i]]);
    }
    this.ends(tile, lastEnds, left, right, place, inks);
  }

  /** A stroke where a request of this tile ends, by how it ended. */
  ends(tile, lastEnds, left, right, { from, scale, row, rowHeight }, inks) {
    tile.header.rows.forEach((one, index) => {
      if (one.reason === null || one.reason === undefined || one.row + 1 <= row) return;
      const end = tile.header.axis === "time" ? one.end_ns : lastEnds[index];
      if (!(end >= tile.from && end < tile.to)) return;
      const x = Math.floor((end - from) * scale);
      const kind = WELL.has(one.reason) ? FINISHED : FAILED;
      if (x + 2 > left && x - 1 < right) this.bar(Math.max(left, x - 1), Math.min(right, x + 2), (one.row - row) * rowHeight, rowHeight, KINDS[kind], inks[kind]);
    });
  }

  /** A finer tile replaces what a coarser one painted in its span and rows. */
  wipe(left, right, tile, { row, rowHeight }) {
    const { width, height } = this.image;
    const top = Math.max(0, Math.round((tile.header.first - row) * rowHeight));
    const bottom = Math.min(height, Math.round((tile.header.first + (tile.header.rows.length) - row) * rowHeight));
    for (let y = top; y < bottom; y++) this.pixels.fill(0, y * width + left, y * width + Math.max(left, right));
  }

  bar(x0, x1, y, rowHeight, kind, colours) {
    const { width, height } = this.image;
    const { pixels } = this;
    const y0 = Math.max(0, Math.round(y + kind.top * rowHeight));
    const y1 = Math.min(height, Math.max(y0 + 1, Math.round(y + kind.bottom * rowHeight)));
    for (let line = y0; line < y1; line++) {
      const edge = kind.pattern === "hollow" && (line === y0 || line === y1 - 1);
      const from = (line % PERIOD) * PERIOD;
      const begin = line * width;
      for (let x = x0; x < x1; x++) pixels[begin + x] = edge ? colours[0] : colours[from + (x % PERIOD)];
    }
  }
}

const PERIOD = 24; // px after which every pattern repeats
const PATTERNS = {
  solid: () => true,
  tick: () => true,
  dotted: (x) => x % 4 < 2,
  diagonal: (x, y) => (x + y) % 6 < 4,
  hollow: (x) => x % 8 === 0,
  cross: (x, y) => (x + y) % 6 < 2 || (x - y + PERIOD) % 6 < 2,
};
const painted = new Map(); // "colour/kind" → colours of PERIOD × PERIOD pixels; the first is always a stroke

function ink(kind) {
  const colour = kindColour(kind);
  if (!painted.has(`${colour}/${kind}`)) painted.set(`${colour}/${kind}`, pattern(colour, PATTERNS[KINDS[kind].pattern]));
  return painted.get(`${colour}/${kind}`);
}

function pattern(colour, isStroke) {
  const hex = parseInt(colour.slice(1), 16);
  const abgr = ((hex & 255) << 16) | (hex & 0xff00) | (hex >> 16);
  const strong = (0xff000000 | abgr) >>> 0;
  const faint = ((FAINT << 24) | abgr) >>> 0;
  return Uint32Array.from({ length: PERIOD * PERIOD }, (_, i) => (isStroke(i % PERIOD, Math.floor(i / PERIOD)) ? strong : faint));
}
