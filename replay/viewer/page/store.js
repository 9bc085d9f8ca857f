// What the page shows, in one object: everything a link restores, and what came from the server about the whole.
// Parts subscribe; updates made together are told together, before the next frame.

export const state = {
  recording: null, // api/recording
  which: "", // "other": the recording that is compared
  life: 1,
  axis: "time", // or "step"
  from: 0, // ns since the life's opening, or steps
  to: 1,
  row: 0, // first row shown; a fraction while scrolling
  rowHeight: 18,
  group: "tenant",
  filter: "",
  alive: 0, // 1: only rows that live within what is shown
  panel: "", // "", step, request, blocks, compare, ask, area, marks, help
  step: null,
  request: null,
  block: null,
  blockStep: null,
  area: null, // [from, to, first row, last row]
  sql: "",
  query: "",
  other: "",
  marked: [], // the reader's own marks, positions on the axis
  theme: "", // "" as the system has it, light, dark
  beside: 0, // 1: the other recording stands in a second lane of each row
  difference: null, // the one last gone to, counted from 0
  follow: false, // keep the newest in view
  error: null, // {message}: about the whole page
  note: "", // one line for the status bar and screen readers
};

const subscribers = new Set();
let pending = null;

/** Change what is shown: keys of `state` only. */
export function update(patch) {
  for (const name of Object.keys(patch)) {
    if (!(name in state)) throw new Error(`the page has no state ${name}`);
  }
  Object.assign(state, patch);
  pending = { ...pending, ...patch };
  if (Object.keys(pending).length && !update.scheduled) {
    update.scheduled = true;
    queueMicrotask(tell);
  }
}

function tell() {
  const patch = pending;
  pending = null;
  update.scheduled = false;
  for (const subscriber of subscribers) subscriber(patch);
}

/** `subscriber(patch)` after each change; returns how to stop it. */
export function subscribe(subscriber) {
  subscribers.add(subscriber);
  return () => subscribers.delete(subscriber);
}

/** Until then the core's states are not told; who shows them asks again. */
export function isIndexed() {
  return state.recording?.index.state !== "building";
}

/** The life shown, of /api/recording. */
export function life() {
  return state.recording?.lives.find((one) => one.life === state.life) || state.recording?.lives[0] || null;
}

/** [first, last] of the axis over the whole life. */
export function bounds() {
  const one = life();
  if (!one) return [0, 1];
  const [from, to] = state.axis === "time" ? [one.from_ns, one.to_ns] : [one.first_step, one.last_step + 1];
  return to > from ? [from, to] : [from, from + 1];
}
