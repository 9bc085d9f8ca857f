// The page begins here: the recording is asked for, the link restores the view, parts are drawn when something changes.
// Read in this order: store.js (what is shown), link.js (… in the address), view.js (… on the screen), api.js, embedded.js and frames.js
// (questions and answers), tiles.js (kept, asked ahead), then the canvas: timeline.js, raster.js, rows.js, strips.js, series.js,
// overlay.js, annotations.js, axis.js, lanes.js and patterns.js; beside.js (two recordings); input.js and moments.js (where clicks and keys lead), live.js (a growing
// recording), take_away.js (SVG, PNG, links), drawing.js and svg_context.js (the SVG); ui/panel.js and the inspectors beside it. theme.js and format.js: looks.
import { askJson, embedded, lookAt } from "./api.js";
import { followPairs } from "./beside.js";
import { listen } from "./input.js";
import { followLink, parse } from "./link.js";
import { followRecording } from "./live.js";
import { html, render } from "./preact.js";
import { bounds, state, subscribe, update } from "./store.js";
import { Timeline } from "./timeline.js";
import { Failure } from "./ui/loader.js";
import { Panel } from "./ui/panel.js";
import { progressOf, Status, Tooltip } from "./ui/status.js";
import { Legend, Toolbar } from "./ui/toolbar.js";
import { scheme } from "./theme.js";
import { showAll } from "./view.js";

const MOVES = new Set(["from", "to", "row"]); // change in each frame: what they are told by can wait a moment
const ASK_AGAIN_MS = 150; // while the index has no first life yet
const host = (id) => document.getElementById(id);

async function begin() {
  const asked = parse(location.hash);
  lookAt(asked.beside ? "" : asked.which ?? "");
  const recording = await firstAnswer();
  lookAt(asked.which ?? "");
  if (asked.beside && !recording.beside) asked.beside = 0;
  if (embedded) Object.assign(asked, { filter: "", alive: 0 }); // a file holds the rows of all
  update({ recording, life: recording.lives[recording.lives.length - 1].life });
  update(asked);
  if (!recording.lives.some((one) => one.life === state.life)) update({ life: recording.lives[0].life });
  if (!("from" in asked)) showAll();
  const timeline = new Timeline(host("timeline"));
  const draw = () => drawParts(timeline);
  subscribe((patch) => (Object.keys(patch).some((name) => !MOVES.has(name)) ? draw() : later(draw)));
  subscribe((patch) => { if ("theme" in patch) applyTheme(); });
  for (const cache of [timeline.slices, timeline.counters, timeline.otherCounters]) cache.changed = () => { timeline.redraw(); later(draw); };
  listen(timeline, { onHover: (place) => hover(timeline, place), onFocusSearch: () => { host("search").focus(); host("search").select(); } });
  followLink();
  followRecording(timeline);
  followPairs();
  applyTheme();
  draw();
  globalThis.reprise = { state, update, timeline, bounds, get firstPaint() { return timeline.firstPaint; } }; // for the tests and the curious
}

/** The recording as soon as one life of it is known; how far the index is stands there meanwhile. */
async function firstAnswer() {
  for (;;) {
    const recording = await askJson("api/recording");
    if (recording.lives.length) return recording;
    if (recording.index.state === "failed") throw new Error(recording.index.error);
    render(html`<p role="status">${progressOf(recording.index)}</p>`, host("status"));
    await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
  }
}

const LATER_MS = 120;
let isDrawDue = false;

function later(draw) {
  if (isDrawDue) return;
  isDrawDue = true;
  setTimeout(() => { isDrawDue = false; draw(); }, LATER_MS);
}

function drawParts(timeline) {
  render(html`<${Toolbar} timeline=${timeline} />`, host("toolbar"));
  render(html`<${Panel} />`, host("panel"));
  render(html`<${Status} timeline=${timeline} />`, host("status"));
  render(html`<${Legend} />`, host("legend"));
  const title = state.panel === "request" && state.request !== null ? `request ${state.request} · ` : "";
  document.title = `${title}${state.recording.name} · Reprise`;
}

function hover(timeline, place) {
  const there = place && timeline.at(place.x, place.y);
  render(there ? html`<${Tooltip} place=${place} there=${there} />` : null, host("tooltip"));
}

function applyTheme() {
  document.documentElement.dataset.theme = scheme();
}

begin().catch((error) => {
  document.documentElement.dataset.failed = "yes";
  render(html`<${Failure} error=${error} />`, host("status"));
});
