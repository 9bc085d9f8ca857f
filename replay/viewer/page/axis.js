// Round positions for the axis' ticks, and how to write them.
import { duration, grouped } from "./format.js";

const STEPS = [1, 2, 5];

/** Round values in [from, to], about `count` of them. */
export function ticks(from, to, count, whole = false) {
  const rough = (to - from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(whole ? 1 : 0, power * (STEPS.find((one) => one * power >= rough) || 10));
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to; value += step) found.push(value);
  return { values: found, step };
}

/** A tick's label: only as many digits as neighbouring ticks differ in. */
export function tickLabel(value, step, axis) {
  if (axis === "step") return grouped(Math.round(value));
  if (value === 0) return "0";
  const unit = Math.abs(value) >= 1e9 ? 1e9 : Math.abs(value) >= 1e6 ? 1e6 : 1e3;
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / unit) - 1e-9)));
  return duration(value, digits);
}
