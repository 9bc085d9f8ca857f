// Values → what a person reads. Strings out of the recording come from clients: what cannot be seen, or would turn
// the line around, is made visible, and lengths are cut with the length told.

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A string of the recording, safe to lay out: control and bidi characters as ‹U+202E›, at most `max` characters. */
export function visible(value, max = 200) {
  const text = String(value ?? "");
  const cut = text.length > max ? `${text.slice(0, max)}… (${grouped(text.length)} characters)` : text;
  return cut.replace(UNSEEN, (char) => `‹U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

/** Like `visible`, but line breaks and tabs stay: for texts in a box of their own. */
export function visibleLines(value, max = 20000) {
  return String(value ?? "").slice(0, max).split("\n").map((line) => visible(line, max)).join("\n");
}

export function grouped(number) {
  return typeof number === "number" ? number.toLocaleString("en-US", { maximumFractionDigits: 20 }) : String(number);
}

/** Nanoseconds as a length of time, with the digits that `step_ns` can tell apart. */
export function duration(ns, digits = 3) {
  if (ns === null || ns === undefined || Number.isNaN(ns)) return "–";
  const size = Math.abs(ns);
  if (size >= 60e9) return `${Math.floor(ns / 60e9)}\u00a0min\u00a0${((ns % 60e9) / 1e9).toFixed(Math.max(0, digits - 2))}\u00a0s`;
  if (size >= 1e9) return `${(ns / 1e9).toFixed(digits)}\u00a0s`;
  if (size >= 1e6) return `${(ns / 1e6).toFixed(digits)}\u00a0ms`;
  if (size >= 1e3) return `${(ns / 1e3).toFixed(Math.min(digits, 1))}\u00a0µs`;
  return `${Math.round(ns)}\u00a0ns`;
}

/** Milliseconds as `reprise show` prints them: three digits behind the point at most. */
export function milliseconds(ms) {
  return ms === null || ms === undefined ? "–" : `${grouped(ms)}\u00a0ms`;
}

/** Any value of an answer as text: lists with spaces, nothing as a dash. */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return grouped(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length ? value.map(plain).join(" ") : "none";
  if (typeof value === "object") return Object.keys(value).length === 0 ? "–" : Object.entries(value).map(([name, part]) => `${visible(name)} ${plain(part)}`).join(", ");
  return visible(value, 2000);
}

/** snake_case of the recording → words. */
export function words(name) {
  return visible(name).replaceAll("_", " ");
}
