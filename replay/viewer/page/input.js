// Mouse and keys on the timeline. Keys work wherever the focus is, except in fields that take text.
import { inspect, stepDifference } from "./beside.js";
import { fitSelection, goToRequest, goToSlice, goToStep, selectLife, stepAt } from "./moments.js";
import { state, update } from "./store.js";
import { GUTTER, pan, plotWidth, scrollTo, show, size, valueAt, xOf, zoom } from "./view.js";

const CLICK = 4; // px that a press may move and still be a click
const ZOOM = 1.25;

/** onHover({x, y} or null) for the tooltip; onFocusSearch() for `/`. */
export function listen(timeline, { onHover, onFocusSearch }) {
  const { canvas } = timeline;
  let press = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    press = { x: event.offsetX, y: event.offsetY, from: state.from, to: state.to, row: state.row, isArea: event.shiftKey, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!press) return hover(timeline, event, onHover);
    press.moved ||= Math.abs(event.offsetX - press.x) + Math.abs(event.offsetY - press.y) > CLICK;
    if (!press.moved) return undefined;
    return press.isArea ? selectArea(timeline, press, event) : drag(press, event);
  });
  canvas.addEventListener("pointerup", (event) => {
    const was = press;
    press = null;
    if (was && !was.moved) click(timeline, event.offsetX, event.offsetY);
    else if (was?.isArea) update({ panel: "area" });
  });
  canvas.addEventListener("pointercancel", () => { press = null; });
  canvas.addEventListener("pointerleave", () => { timeline.hover = null; onHover(null); timeline.redraw(); });
  canvas.addEventListener("dblclick", (event) => doubleClick(timeline, event));
  canvas.addEventListener("wheel", (event) => wheel(event), { passive: false });
  addEventListener("keydown", (event) => key(timeline, event, onFocusSearch));
}

function hover(timeline, event, onHover) {
  const { offsetX: x, offsetY: y } = event;
  timeline.hover = x >= GUTTER ? { value: valueAt(x) } : null;
  timeline.redraw();
  onHover({ x, y });
}

function drag(press, event) {
  const by = ((press.x - event.offsetX) / plotWidth()) * (press.to - press.from);
  show(press.from + by, press.to + by);
  scrollTo(press.row + (press.y - event.offsetY) / state.rowHeight);
}

function selectArea(timeline, press, event) {
  const values = [valueAt(press.x), valueAt(event.offsetX)].sort((a, b) => a - b);
  const row = (y) => Math.max(0, Math.floor(state.row + (Math.max(y, size.top) - size.top) / state.rowHeight));
  const rows = press.y < size.top ? [0, Number.MAX_SAFE_INTEGER] : [row(press.y), row(event.offsetY)].sort((a, b) => a - b);
  update({ area: [...values, ...rows.map((one) => Math.min(one, 2 ** 31))] });
}

async function click(timeline, x, y) {
  timeline.canvas.focus({ preventScroll: true });
  const there = timeline.at(x, y);
  if (there.mark) return update({ panel: "marks" });
  if (y < size.top) {
    const step = state.axis === "step" ? Math.floor(there.value) : await stepAt(there.value).catch(() => null);
    return step === null ? undefined : goToStep(step);
  }
  if (!there.party) return undefined;
  if (state.beside) inspect(there.lane.which);
  return goToRequest(there.party.request, state.life, x < GUTTER ? null : there.value);
}

async function doubleClick(timeline, event) {
  const there = timeline.at(event.offsetX, event.offsetY);
  if (there.slice) show(there.slice.from - (there.slice.to - there.slice.from) * 0.2, there.slice.to + (there.slice.to - there.slice.from) * 0.2);
  else zoom(1 / (ZOOM * 2), there.value);
}

function wheel(event) {
  event.preventDefault();
  if (event.ctrlKey || event.metaKey) zoom(ZOOM ** (event.deltaY / 60), valueAt(Math.max(GUTTER, event.offsetX)));
  else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((event.deltaX || event.deltaY) / plotWidth());
  else scrollTo(state.row + event.deltaY / state.rowHeight);
}

function key(timeline, event, onFocusSearch) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.closest?.("input, textarea, select");
  if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    else if (state.panel) update({ panel: "", area: null });
    else update({ request: null, step: null, area: null });
    return;
  }
  if (isTyping) return;
  const cursor = timeline.hover?.value ?? (state.from + state.to) / 2;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  const isButton = event.target.closest?.("button, a, summary, [role=tab]");
  if (!act || (isButton && event.key.startsWith("Arrow"))) return;
  event.preventDefault();
  act({ cursor, onFocusSearch, timeline });
}

const KEYS = {
  w: ({ cursor }) => zoom(1 / ZOOM, cursor),
  s: ({ cursor }) => zoom(ZOOM, cursor),
  a: () => pan(-0.15),
  d: () => pan(0.15),
  ArrowLeft: () => (state.panel === "step" && state.step > 0 ? goToStep(state.step - 1) : pan(-0.15)),
  ArrowRight: () => (state.panel === "step" && state.step !== null ? goToStep(state.step + 1) : pan(0.15)),
  ArrowUp: () => scrollTo(state.row - 1),
  ArrowDown: () => scrollTo(state.row + 1),
  PageUp: () => scrollTo(state.row - 20),
  PageDown: () => scrollTo(state.row + 20),
  Home: () => scrollTo(0),
  "+": () => update({ rowHeight: Math.min(40, state.rowHeight + 2) }),
  "-": () => update({ rowHeight: Math.max(3, state.rowHeight - 2) }),
  n: () => stepDifference(1),
  p: () => stepDifference(-1),
  f: () => fitSelection(),
  r: () => selectLife(),
  ".": ({ timeline }) => (state.panel === "step" && state.step !== null ? goToStep(state.step + 1) : goToSlice(timeline, 1)),
  ",": ({ timeline }) => (state.panel === "step" && state.step > 0 ? goToStep(state.step - 1) : goToSlice(timeline, -1)),
  m: ({ cursor }) => update({ marked: toggled(cursor) }),
  "/": ({ onFocusSearch }) => onFocusSearch(),
  "?": () => update({ panel: state.panel === "help" ? "" : "help" }),
};

/** A mark at the cursor, or away with the one that lies within a few pixels of it. */
function toggled(value) {
  const near = state.marked.filter((one) => Math.abs(xOf(one) - xOf(value)) < 6);
  return near.length ? state.marked.filter((one) => !near.includes(one)) : [...state.marked, value].sort((a, b) => a - b).slice(0, 50);
}
