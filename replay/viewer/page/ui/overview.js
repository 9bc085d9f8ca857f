// What is in view without a canvas: the rows as a table, the marks as a table, an area in figures, and the keys.
import { askFrame, askJson, embedded } from "../api.js";
import { duration, markWords, words } from "../format.js";
import { SHAPES } from "../overlay.js";
import { html } from "../preact.js";
import { state } from "../store.js";
import { show } from "../view.js";
import { Loader } from "./loader.js";
import { Figures, RequestLink, StepLink, Table } from "./parts.js";

const MAX_ROWS = 256;

/** The table alternative of the timeline. */
export function RowsPanel() {
  const { life, axis, group, filter, from, to } = state;
  const query = { life, axis, group, filter, from, to, width: 1, alive: 1, rows: `0,${MAX_ROWS}` };
  return html`<${Loader} id=${JSON.stringify(query)} load=${() => askFrame("api/timeline", query)}>${({ header: whole }) => inView(whole, (header) => html`
    <p>${header.num_rows} requests live in what is shown${header.num_rows > MAX_ROWS ? `; the first ${MAX_ROWS} are listed` : ""}.</p>
    <${Table} isTall caption="Requests in view" head=${["request", "number", "group", "tenant", "priority", "arrived", "ended", "by"]} numeric=${[1, 4]}
      rows=${header.rows.map((one) => [html`<${RequestLink} request=${one.request} id=${one.request_id} />`, one.request, one.group, one.tenant, one.priority, duration(one.arrival_ns), duration(one.end_ns), one.reason ?? "lives"])} />`)}<//>`;
}

/** A single file's tile holds everybody; on the axis of steps it does not know who lived when. */
function inView(header, tell) {
  if (!embedded) return tell(header);
  if (state.axis === "step") return html`<p>Who lives in view is told on the axis of time.</p>`;
  const rows = header.rows.filter((one) => one.arrival_ns <= state.to && (one.end_ns ?? Infinity) >= state.from);
  return tell({ rows: rows.slice(0, MAX_ROWS), num_rows: rows.length });
}

export function MarksPanel() {
  const { life } = state;
  return html`<${Loader} id=${life} load=${() => askJson("api/marks", { life })}>${({ marks, is_cut: isCut }) => html`
    <${Table} isTall caption=${`Marks of the recording: ${marks.length}${isCut ? " (cut)" : ""}`} head=${["kind", "began", "ended", "lasted", "step", "request", "what it says"]}
      rows=${marks.map((one) => [html`<button type="button" class="link short" onClick=${() => goTo(one)}>${SHAPES[one.kind] ?? "●"} ${words(one.kind)}</button>`, duration(one.now_ns), lasts(one) ? duration(one.until_ns) : "–", lasts(one) ? duration(one.until_ns - one.now_ns) : "–", html`<${StepLink} step=${one.step} />`, html`<${RequestLink} request=${one.request} />`, markWords(one)])} />`}<//>`;
}

/** A mark without a length is a moment. */
function lasts(mark) {
  return mark.until_ns !== null && mark.until_ns > mark.now_ns;
}

function goTo(mark) {
  if (state.axis === "step") return show(mark.step - 20, mark.step + 20);
  const length = Math.max((mark.until_ns ?? mark.now_ns) - mark.now_ns, 1e8);
  return show(mark.now_ns - length * 0.3, mark.now_ns + length * 1.3);
}

export function AreaPanel() {
  if (!state.area) return html`<p>Hold shift and drag over the timeline to select an area.</p>`;
  const [from, to, first, last] = state.area;
  const { life, axis, group, filter } = state;
  const query = { life, axis, group, filter, from, to, rows: last > 1e9 ? "" : `${first},${last - first + 1}` };
  return html`<p>${axis === "time" ? `${duration(from)} to ${duration(to)}, ${duration(to - from)} long` : `steps ${Math.floor(from)} to ${Math.floor(to)}`}${last > 1e9 ? ", all rows" : `, rows ${first} to ${last}`}.</p>
    <div class="buttons"><button type="button" onClick=${() => show(from, to)}>zoom to it</button></div>
    <${Loader} id=${JSON.stringify(query)} load=${() => askJson("api/area", query)}>${({ by_kind: byKind, ...figures }) => html`
      <${Figures} label="aggregates of the area" of=${figures} />
      ${byKind ? html`<${Table} caption="By kind" head=${["kind", "slices", axis === "time" ? "time in sum" : "steps in sum"]} numeric=${[1, 2]}
        rows=${Object.entries(byKind).map(([name, { count, busy }]) => [name, count, axis === "time" ? duration(busy) : busy])} />` : null}`}<//>`;
}

const KEYS = [
  ["W S", "zoom in and out at the cursor (or ctrl + wheel)"], ["A D", "pan left and right (or drag)"], ["↑ ↓ wheel", "rows up and down"], ["+ -", "higher and lower rows"],
  ["← →", "pan; with a step open: the step before, the next"], ["F", "show the selected request's whole life; nothing selected: everything"], ["R", "select the request's life as an area: its aggregates"], [". ,", "the selected request's next slice, the one before; with a step open: the next step, the one before"], ["N P", "side by side: the next request that is served otherwise, the one before"], ["M", "set a mark at the cursor, or take it away"], ["/", "search: request id, tenant, number, reason, step"],
  ["shift + drag", "select an area: its aggregates"], ["click a row", "inspect the request"], ["click axis or strip", "inspect the step"], ["double click", "zoom to the slice"], ["Esc", "close, then deselect"], ["?", "this list"],
];

export function HelpPanel() {
  return html`<${Table} isTall caption="Keys and mouse" head=${["key", "what it does"]} rows=${KEYS.map(([key, does]) => [html`<kbd>${key}</kbd>`, does])} />
    <h3>How to find out …</h3>
    <dl class="walks">
      <dt>why a request waited</dt><dd>Search it with <kbd>/</kbd>. “Why it waited” has each reason, how long it held, the blocks it needed and those free, and behind whom it stood. A step there is one click from everybody else who waited.</dd>
      <dt>who preempted it</dt><dd>An arrow leads from its row to the one it gave way to; “Preempted, or others for it” says why, and what it cost. Dashed arrows belong to a cascade.</dd>
      <dt>what ran beside it when it failed</dt><dd>“Its last batch” names who stood in it, and leads to that step; “Beside it in its batches” lists all who shared its steps.</dd>
      <dt>when thrashing began, and what ended it</dt><dd>Open Marks: ▲ has begin and end, with the share that was computed again at both; click it to see that stretch. The ▽ within it are admissions held back.</dd>
    </dl>`;
}
