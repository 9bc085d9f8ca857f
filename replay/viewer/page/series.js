// A counter's figures → pixels: smallest to greatest of each pixel as a faint band, the mean as a line, told apart by
// colour and dashes. One pass over a tile's arrays; as paths of the canvas the same took 13 ms of a frame where every
// pixel holds thousands of steps. It asks nothing.
import { state } from "./store.js";

const BRIDGED = 2; // pixels of a tile without a step that a line goes over

/** `look` {top, bottom, greatest: the value at the top, colour: a pixel, dash: of which x and y are drawn, thick} in
 * device pixels of the raster. Returns nothing; a value that is not known leaves its place as it is. */
export function paintSeries(raster, tile, name, look) {
  const { [`${name}.min`]: low, [`${name}.max`]: high, [`${name}.mean`]: mean } = tile.columns;
  if (!mean) return;
  const { width } = raster.image;
  const { from, to } = tile.header;
  const bucket = (to - from) / mean.length;
  const scale = width / (state.to - state.from);
  const stepMs = state.axis === "step" ? null : tile.columns["step_ms.max"];
  const y = (value) => Math.round(look.bottom - (Math.min(value, look.greatest) / look.greatest) * (look.bottom - look.top));
  const right = Math.min(mean.length, Math.ceil((state.to - from) / bucket));
  let held = -Infinity; // a value holds as long as its step; what lies between steps is idle, and drawn as nothing
  let before = 0;
  let banded = 0; // two of a finer tile may share a pixel
  for (let i = firstInView(mean, (state.from - from) / bucket); i < right; i++) {
    if (Number.isNaN(mean[i])) continue;
    const begin = from + i * bucket;
    const length = stepMs ? (stepMs[i] || 0) * 1e6 : state.axis === "step" ? 1 : 0;
    const x0 = Math.floor((begin - state.from) * scale);
    const x1 = Math.max(x0 + 1, Math.floor((begin + Math.max(bucket, length) - state.from) * scale));
    if (high[i] > low[i]) {
      const beyond = Math.min(width, Math.max(x0 + 1, Math.floor((begin + bucket - state.from) * scale)));
      band(raster, Math.max(banded, x0), beyond, y(high[i]), y(low[i]), look.colour);
      banded = Math.max(banded, beyond);
    }
    const at = y(mean[i]);
    if (begin <= held + bucket * BRIDGED) bridge(raster, Math.floor((held - state.from) * scale), x0, before, at, look);
    across(raster, x0, x1, at, look);
    held = begin + Math.max(bucket, length);
    before = at;
  }
}

/** Where the step begins that is under way at the left edge. */
function firstInView(mean, place) {
  let first = Math.min(mean.length - 1, Math.max(0, Math.floor(place)));
  while (first > 0 && Number.isNaN(mean[first])) first -= 1;
  return first;
}

/** A quarter of the colour over what is there. */
function band({ pixels, image: { width } }, x0, x1, y0, y1, colour) {
  const quarter = (colour >>> 2) & 0x3f3f3f;
  for (let line = y0; line <= y1; line++) {
    const end = line * width + x1;
    for (let at = line * width + x0; at < end; at++) pixels[at] = 0xff000000 | (((pixels[at] >>> 2) & 0x3f3f3f) * 3 + quarter);
  }
}

function across({ pixels, image: { width } }, x0, x1, y, { colour, dash, thick }) {
  const beyond = Math.min(width, x1);
  for (let line = y - thick + 1; line <= y; line++) {
    for (let x = Math.max(0, x0); x < beyond; x++) if (dash[x % dash.length]) pixels[line * width + x] = colour;
  }
}

/** From one value to the next: on with the first until the second begins, then up or down. */
function bridge(raster, x0, x1, from, to, look) {
  across(raster, x0, x1, from, look);
  const { pixels, image: { width } } = raster;
  if (x1 < 0 || x1 >= width) return;
  for (let y = Math.min(from, to); y <= Math.max(from, to); y++) {
    if (look.dash[y % look.dash.length]) pixels.fill(look.colour, y * width + x1, y * width + Math.min(width, x1 + look.thick));
  }
}
