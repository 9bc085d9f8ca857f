// What a reader takes away: the link, the command, the view as SVG or PNG.
import { askJson } from "./api.js";
import { ticks, tickLabel } from "./axis.js";
import { visible } from "./format.js";
import { laneOf } from "./lanes.js";
import { hash } from "./link.js";
import { state, update } from "./store.js";
import { colours, KINDS, kindColour } from "./theme.js";
import { GUTTER, rowsShown, size, xOf } from "./view.js";

const MAX_BARS = 60000;
const TOP = 26;

export async function copyLink() {
  await copy(`${location.origin}${location.pathname}${hash()}`, "the link to this view");
}

/** The `reprise` command that leads to what is selected. */
export async function copyCommand() {
  const [kind, number] = selected();
  try {
    const { command } = await askJson("api/command", { kind, life: state.life, number });
    await copy(command, command);
  } catch (error) {
    update({ note: error.message });
  }
}

/** What the panel is about, else the selected request, else the recording. */
function selected() {
  if (state.panel === "compare" && state.recording.beside) return ["compare", 0];
  if (state.panel === "blocks" && state.block !== null) return ["block", state.block];
  if (state.panel === "step" && state.step !== null) return ["step", state.step];
  return state.request === null ? ["recording", 0] : ["request", state.request];
}

async function copy(text, told) {
  try {
    await navigator.clipboard.writeText(text);
    update({ note: `copied: ${told}` });
  } catch {
    update({ note: text }); // the browser refuses the clipboard: it stands there to be copied by hand
  }
}

/** The rows in view as a drawing with patterns, for a report. */
export function svgOf(timeline) {
  const { back, text, faint, line } = colours();
  const bars = [];
  let numLeftOut = 0;
  for (const tile of timeline.shown || []) {
    const { row: rows, kind, from, to } = tile.columns;
    const lane = laneOf(tile);
    for (let i = 0; i < rows.length; i++) {
      const row = tile.header.rows[rows[i]].row;
      const x0 = Math.max(GUTTER, xOf(Math.max(from[i], tile.from)));
      const x1 = Math.min(size.width, xOf(Math.min(to[i], tile.to)));
      if (x1 <= x0 || row < state.row || row > state.row + rowsShown()) continue;
      if (bars.length >= MAX_BARS) numLeftOut += 1;
      else bars.push(barOf(KINDS[kind[i]], x0, x1, TOP + (row - state.row + lane.top) * state.rowHeight, lane.height * state.rowHeight));
    }
  }
  const height = TOP + Math.min(rowsShown(), timeline.known.byRow.size) * state.rowHeight + 24;
  const { values, step } = ticks(state.from, state.to, 10, state.axis === "step");
  const axis = values.filter((value) => xOf(value) > GUTTER).map((value) => `<path d="M${xOf(value)} 18V${height}" stroke="${line}"/><text x="${xOf(value) + 3}" y="14" fill="${faint}">${escaped(tickLabel(value, step, state.axis))}</text>`);
  const names = [...timeline.known.byRow.values()].filter((one) => one.row >= state.row && one.row < state.row + rowsShown())
    .map((one) => `<text x="8" y="${TOP + (one.row - state.row + 0.75) * state.rowHeight}" fill="${text}">${escaped(visible(one.request_id, 28))}</text>`);
  const said = `${visible(state.recording.name, 80)}${numLeftOut ? `; ${numLeftOut} slices are left out` : ""}`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${size.width}" height="${height}" font-family="sans-serif" font-size="11"><title>${escaped(said)}</title><defs>${KINDS.map(patternOf).join("")}</defs><rect width="100%" height="100%" fill="${back}"/>${axis.join("")}${bars.join("")}${names.join("")}<text x="8" y="${height - 6}" fill="${faint}">${escaped(said)}</text></svg>`;
}

function barOf(kind, x0, x1, y, laneHeight) {
  const top = y + kind.top * laneHeight;
  return `<rect x="${x0.toFixed(2)}" y="${top.toFixed(2)}" width="${Math.max(0.5, x1 - x0).toFixed(2)}" height="${((kind.bottom - kind.top) * laneHeight).toFixed(2)}" fill="url(#${kind.name})"${kind.pattern === "hollow" ? ` stroke="${kindColour(KINDS.indexOf(kind))}"` : ""}/>`;
}

const STROKES = { solid: "M0 0H8V8H0Z", tick: "M0 0H8V8H0Z", dotted: "M0 0H4V8H0Z", diagonal: "M0 8L8 0H3L0 3ZM8 8V3L3 8Z", hollow: "M0 0H1V8H0Z", cross: "M0 0L8 8M8 0L0 8" };

function patternOf(kind, index) {
  const colour = kindColour(index);
  return `<pattern id="${kind.name}" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" fill="${colour}" fill-opacity="0.27"/><path d="${STROKES[kind.pattern]}" fill="${colour}" stroke="${kind.pattern === "cross" ? colour : "none"}" stroke-width="2"/></pattern>`;
}

function escaped(text) {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

export function saveSvg(timeline) {
  save(new Blob([svgOf(timeline)], { type: "image/svg+xml" }), "svg");
}

export function savePng(timeline) {
  const whole = document.createElement("canvas");
  whole.width = timeline.canvas.width;
  whole.height = timeline.canvas.height;
  const context = whole.getContext("2d");
  context.fillStyle = colours().back;
  context.fillRect(0, 0, whole.width, whole.height);
  context.drawImage(timeline.canvas, 0, 0);
  whole.toBlob((blob) => save(blob, "png"));
}

function save(blob, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${state.recording.name.replace(/[^\w.-]+/g, "_").slice(0, 60)}-${state.axis}-${Math.round(state.from)}.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
