// The patterns that tell kinds apart without colour, as pixels: functions of the pixel, the same at every zoom.
import { KINDS, kindColour } from "./theme.js";

export const PERIOD = 24; // px after which every pattern repeats
const FAINT = 70; // of 255: what lies between the strokes of a pattern
const PATTERNS = {
  solid: () => true,
  tick: () => true,
  dotted: (x) => x % 4 < 2,
  diagonal: (x, y) => (x + y) % 6 < 4,
  hollow: (x) => x % 8 === 0,
  cross: (x, y) => (x + y) % 6 < 2 || (x - y + PERIOD) % 6 < 2,
};
const painted = new Map(); // "colour/kind" → colours of PERIOD × PERIOD pixels; the first is always a stroke

/** A kind's colours as they are now: PERIOD × PERIOD pixels, ABGR. */
export function ink(kind) {
  const colour = kindColour(kind);
  const key = `${colour}/${kind}`;
  if (!painted.has(key)) painted.set(key, pattern(colour, PATTERNS[KINDS[kind].pattern]));
  return painted.get(key);
}

function pattern(colour, isStroke) {
  const hex = parseInt(colour.slice(1), 16);
  const abgr = ((hex & 255) << 16) | (hex & 0xff00) | (hex >> 16);
  const strong = (0xff000000 | abgr) >>> 0;
  const faint = ((FAINT << 24) | abgr) >>> 0;
  return Uint32Array.from({ length: PERIOD * PERIOD }, (_, i) => (isStroke(i % PERIOD, Math.floor(i / PERIOD)) ? strong : faint));
}
