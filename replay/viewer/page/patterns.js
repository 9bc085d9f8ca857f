// The patterns that tell kinds apart without colour, as pixels: functions of the pixel, the same at every zoom.
import { colours, KINDS, kindColour } from "./theme.js";

export const PERIOD = 24; // px after which every pattern repeats
const FAINT = 0.27; // share of the colour in what lies between the strokes of a pattern
const PATTERNS = {
  solid: () => true,
  tick: () => true,
  dotted: (x) => x % 4 < 2,
  diagonal: (x, y) => (x + y) % 6 < 4,
  hollow: (x) => x % 8 === 0,
  cross: (x, y) => (x + y) % 6 < 2 || (x - y + PERIOD) % 6 < 2,
};
const painted = new Map(); // "colour/back/kind" → colours of PERIOD × PERIOD pixels; the first is always a stroke

/** A kind's colours as they are now: PERIOD × PERIOD pixels. */
export function ink(kind) {
  const colour = kindColour(kind);
  const { back } = colours();
  const key = `${colour}/${back}/${kind}`;
  if (!painted.has(key)) painted.set(key, pattern(colour, back, PATTERNS[KINDS[kind].pattern]));
  return painted.get(key);
}

/** "#rrggbb", by `share` over another, as an opaque pixel. */
export function pixel(colour, share = 1, back = colour) {
  const [over, under] = [colour, back].map((one) => parseInt(one.slice(1), 16));
  const mixed = [16, 8, 0].map((shift) => Math.round(((over >> shift) & 255) * share + ((under >> shift) & 255) * (1 - share)));
  return ((0xff << 24) | (mixed[2] << 16) | (mixed[1] << 8) | mixed[0]) >>> 0;
}

function pattern(colour, back, isStroke) {
  const strong = pixel(colour);
  const faint = pixel(colour, FAINT, back);
  return Uint32Array.from({ length: PERIOD * PERIOD }, (_, i) => (isStroke(i % PERIOD, Math.floor(i / PERIOD)) ? strong : faint));
}
