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

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 20 });

export function grouped(number) {
  return typeof number === "number" ? GROUPED.format(number) : String(number);
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

const WHY = {
  max_num_seqs: "as many requests run as may",
  token_budget: "nothing was left of the step's token budget",
  out_of_blocks: "it takes more blocks than were free; those of its prefix that are cached and nobody holds count on both sides (before decision_rules 3 only as free)",
  preemption: "somebody was preempted in this pass, so nobody is admitted",
  behind_another: "the policy puts another first",
  watermark: "its blocks were free, but too few would be left",
  expected_growth: "its blocks were free, but those that run are expected to need them",
  reserved_blocks: "those that run have the blocks that it may grow to",
};

/** Why somebody waits: the reason as it is recorded, and in words. */
export function why(reason) {
  return reason ? `${visible(reason)}${WHY[reason] ? `: ${WHY[reason]}` : ""}` : "–";
}

/** A mark's figures as a sentence, where there is one; else as they are recorded. */
export function markWords({ kind, detail, ended_by: ended }) {
  const of = Object.fromEntries([...String(detail ?? "").matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name, value]));
  const share = (part, whole) => `${grouped(Number(part))} of ${grouped(Number(whole))} tokens computed in the window were computed again (${((100 * part) / whole).toFixed(1)} %)`;
  if (kind === "thrashing" && of.num_computed > 0) {
    const over = ended && ended.num_computed > 0 ? `; over when ${share(ended.num_recomputed, ended.num_computed)}` : ended ? "; over when nothing was computed in the window any more" : "";
    return `${share(of.num_recomputed, of.num_computed)}, more than ${of.bound_permille / 10} %${over}`;
  }
  if (kind === "throttled" && of.watermark_blocks) return `admissions keep ${grouped(Number(of.watermark_blocks))} blocks free from now on, ${grouped(Number(of.watermark_before))} before; ${of.share_permille / 10} % is computed again`;
  return visible(detail ?? "", 2000);
}

/** snake_case of the recording → words. */
export function words(name) {
  return visible(name).replaceAll("_", " ");
}
